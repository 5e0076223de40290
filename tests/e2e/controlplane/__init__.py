"""A real Kubernetes control plane on loopback, for the tests.

`build` makes the binaries from the Go modules pinned in ``../go.mod`` and caches
them, `certs` makes the identities, `server` runs the processes, `admin` talks to
the API server with nothing but the standard library, `proxy` breaks the line in
between (`faults` has its words), `kubelet` plays the nodes. Import from those: this
package imports nothing, so that `build` needs the standard library alone.
"""
