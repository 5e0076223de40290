# docker build -t registry.example/nodeguard:0.1.0 .
ARG PYTHON=3.11
FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY nodeguard nodeguard
COPY rules rules
# An environment without pip, and not editable. rich stays out: structlog imports it where it is installed (2.5 MB).
# kubernetes/aio is half of that package's size and never imported.
RUN python -m venv --without-pip /opt/nodeguard \
 && pip --python /opt/nodeguard/bin/python install --no-cache-dir --no-compile --disable-pip-version-check . \
 && rm -rf /opt/nodeguard/lib/python*/site-packages/kubernetes/aio

FROM python:${PYTHON}-slim
COPY --from=build /opt/nodeguard /opt/nodeguard
# Byte code for everything, the standard library too, whose own these images leave out: on a read-only root nothing is
# compiled later, and compiling in memory at every start costs up to 142 MB. By hash and unchecked, so that a builder
# that rewrites file times makes none of it stale.
RUN /opt/nodeguard/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(test|idlelib|lib2to3)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" /opt/nodeguard/lib \
 && /opt/nodeguard/bin/nodeguard rules check
# One arena a thread would never be given back.
ENV PATH=/opt/nodeguard/bin:$PATH MALLOC_ARENA_MAX=2
# Root: /dev/kmsg and parts of NVML are root's. deploy/daemonset.yaml has every privilege with its reason.
ENTRYPOINT ["nodeguard"]
CMD ["agent"]
