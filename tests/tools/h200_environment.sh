# Sourced by the scripts that run on a bare GPU machine, from the repository root. Installs wheels from .whl/ once, and
# sets nsys to the Nsight Systems command line where the machine has one (empty otherwise).
export PYTHONUNBUFFERED=1

if compgen -G '.whl/*.whl' >/dev/null; then
  if [ ! -e /tmp/site/.complete ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl || exit 1
    touch /tmp/site/.complete
  fi
  export PYTHONPATH=/tmp/site
fi

# Nsight Systems' command line lies inside Nsight Compute, without the arrangement its importer looks for.
nsys=
for host in /opt/nvidia/nsight-compute/*/host; do
  [ -x "$host/target-linux-x64/nsys" ] || continue
  mkdir -p /tmp/ns
  [ -e /tmp/ns/target-linux-x64 ] || cp -r "$host/target-linux-x64" /tmp/ns/
  [ -e /tmp/ns/host-linux-x64 ] || ln -s "$host/linux-desktop-glibc_2_11_3-x64" /tmp/ns/host-linux-x64
  nsys=/tmp/ns/target-linux-x64/nsys
done
if compgen -G '.deb/*.deb' >/dev/null; then
  for package in .deb/*.deb; do dpkg -x "$package" /tmp/ns-libraries; done
  export LD_LIBRARY_PATH=/tmp/ns-libraries/usr/lib/x86_64-linux-gnu:/tmp/ns-libraries/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}
fi
