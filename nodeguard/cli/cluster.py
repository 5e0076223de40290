"""What commands share that a person runs against a cluster: how it is reached, and where nodeguard's objects are."""

import argparse
import os
from pathlib import Path

from nodeguard.kube.client import KubeClient, connect
from nodeguard.model.errors import UserError


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--kubeconfig`` and ``--namespace``."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE",
                        help="how to reach the API server; default: KUBECONFIG, else the pod's service account")
    parser.add_argument("--namespace", default=os.environ.get("NODEGUARD_NAMESPACE") or "nodeguard", metavar="NS",
                        help="namespace of nodeguard's objects; default: NODEGUARD_NAMESPACE, else nodeguard")


def api_of(args: argparse.Namespace) -> KubeClient:
    """The cluster that these flags name. UserError: none, or it cannot be reached so."""
    given = args.kubeconfig or os.environ.get("KUBECONFIG")
    api = connect(None if given is None else Path(given))
    if api is None:
        raise UserError("no cluster: give --kubeconfig FILE, or set KUBECONFIG")
    return api
