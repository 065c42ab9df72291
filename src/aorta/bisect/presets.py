"""Shipped presets: container families whose packages, paths and build commands are known."""

from aorta.bisect.spec import PackageSpec

JAX_URL_TEMPLATE = "ghcr.io/nvidia/jax:{container}-{date}"

# XLA is built as a part of JAX, so only the last of the two builds; `build-jax.sh` is the images' own script.
JAX_PACKAGES = (
    PackageSpec(name="xla", path="/opt/xla"),
    PackageSpec(name="jax", path="/opt/jax", build="build-jax.sh ${BAZEL_CACHE_OPTION}"),
    PackageSpec(name="flax", path="/opt/flax"),
    PackageSpec(name="maxtext", path="/opt/maxtext"),
)
