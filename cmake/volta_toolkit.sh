#!/usr/bin/env bash
# Prints the folder of a CUDA toolkit that compiles and links for sm_70 (CUDA 13 cannot) and has nvdisasm and cu++filt:
#   bash cmake/volta_toolkit.sh
# It takes the first of these that is one: $QPN_VOLTA_TOOLKIT (or, where that is not set, the folder of an earlier
# fetch), the toolkit of $CUDACXX, the toolkit of nvcc on PATH. If there is none it fetches CUDA 12.4 from Debian 13's
# packages, with cuBLAS and the header of NCCL, through the mirror that apt uses here, into $QPN_VOLTA_TOOLKIT or the
# user's cache: about 1.3 GB over the network, 2 minutes, 750 MB kept. Nothing is installed, apt's own lists stay as
# they are, and no root is needed. Works on Debian 12 (g++ 12) and 13 (g++-13, since CUDA 12.4 takes no newer one);
# `setup.sh volta` installs the compiler.
# An interrupted fetch starts again. Messages go to standard error; each failure is one sentence and exit code 1.
set -u -o pipefail

recipe=2  # of what is kept and how; a folder that another recipe made is fetched again
suite=trixie
mebibytes_needed=1400
folder=${QPN_VOLTA_TOOLKIT:-${XDG_CACHE_HOME:-${HOME:?set HOME or QPN_VOLTA_TOOLKIT}/.cache}/qpn/cuda-12.4}
part=$folder.part  # becomes $folder once it is complete
other_way='set QPN_VOLTA_TOOLKIT to a CUDA toolkit of release 12.0 to 12.9'

say() { printf 'volta toolkit: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# usable FOLDER: whether it is a toolkit for sm_70 with the tools that read machine code, and not of another recipe.
usable() {
  local tool
  for tool in nvcc nvdisasm cu++filt; do [ -x "$1/bin/$tool" ] || return; done
  [ "$(cat "$1/recipe" 2> /dev/null || echo "$recipe")" = "$recipe" ] &&
    "$1/bin/nvcc" --list-gpu-arch 2> /dev/null | grep -qx compute_70
}

# root_of NVCC: the usable toolkit that this nvcc, or the file that it links to, belongs to.
root_of() {
  local path root
  path=$(type -P "$1") || return
  for path in "$path" "$(readlink -f "$path")"; do
    root=$(cd "$(dirname "$path")/.." && pwd)
    usable "$root" && { echo "$root"; return; }
  done
  return 1
}

# The settings of nvcc, which finds its tree from its own path. Where g++ is absent or too new it is told of a folder
# with g++-13 under the names that it asks for.
profile() {
  local version
  version=$(g++ -dumpversion 2> /dev/null | cut -d. -f1)
  printf '%s\n' 'TOP = $(_HERE_)/..' 'NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice' 'PATH += $(TOP)/nvvm/bin:$(_HERE_):' \
    'INCLUDES += "-I$(TOP)/include" $(_SPACE_)' 'LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"'
  [ "${version:-99}" -le 13 ] || echo 'compiler-bindir = $(TOP)/host'
}

# write_profile FOLDER: in one step, since others may be compiling.
write_profile() {
  mkdir -p "$1/host" && ln -sfn "$(type -P gcc-13 || echo gcc-13)" "$1/host/gcc" &&
    ln -sfn "$(type -P g++-13 || echo g++-13)" "$1/host/g++" &&
    profile > "$1/bin/nvcc.profile.$$" && mv "$1/bin/nvcc.profile.$$" "$1/bin/nvcc.profile"
}

# The Debian mirrors of apt's own sources, in whichever of apt's two formats they are written.
mirrors() {
  local releases=' bookworm trixie forky sid oldstable stable testing unstable ' uri release component
  apt-get indextargets --format '$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 'Created-By: Packages' 2> /dev/null |
    while IFS='|' read -r uri release component; do
      [ "$component" = main ] && [[ $releases == *" $release "* ]] && echo "$uri"
    done | awk '!seen[$0]++'
}

# apt_get ARGUMENT...: with lists, cache and sources of our own; proxies and the like come from the system.
apt_get() {
  apt-get -q -o Dir::State::lists="$part/apt/lists" -o Dir::State::status="$part/apt/status" \
    -o Dir::Cache="$part/apt/cache" -o Dir::Etc::sourcelist="$part/apt/sources.list" \
    -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root \
    -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60 "$@" \
    < /dev/null >> "$part/log" 2>&1
}

# reason: the first complaint in the log, for the end of a sentence.
reason() { grep -m 1 -E '^[EW]: |rror|annot|fatal' "$part/log" || echo 'no reason was given'; }

# Sets keyring, or says what is missing on this machine.
check_machine() {
  local ID='' program file
  [ ! -r /etc/os-release ] || . /etc/os-release
  [ "$ID" = debian ] || fail "CUDA 12.4 is fetched from Debian's packages, and this system is not Debian: $other_way."
  for program in apt-get dpkg-deb flock; do
    type -P "$program" > /dev/null || fail "$program, which fetches CUDA 12.4, is missing: install it, or $other_way."
  done
  keyring=
  for file in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do [ ! -r "$file" ] || keyring=$file; done
  [ -n "$keyring" ] || fail "the keys of Debian's archive are missing: install debian-archive-keyring, or $other_way."
}

# Waits for any other fetch into the folder and makes sure that the folder may be replaced and has room.
claim_folder() {
  local parent free
  parent=$(dirname "$folder")
  mkdir -p "$parent" 2> /dev/null && { : >> "$folder.lock"; } 2> /dev/null ||
    fail "$parent cannot be written to: set QPN_VOLTA_TOOLKIT to a folder that can be."
  exec 9>> "$folder.lock"
  flock 9
  usable "$folder" && return
  [ ! -e "$folder" ] || [ -f "$folder/recipe" ] || rmdir "$folder" 2> /dev/null ||
    fail "$folder is there, but is no toolkit for sm_70 and was not made by this script: remove it, or $other_way."
  rm -rf "$part"  # an interrupted fetch
  free=$(df -Pm "$parent" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$mebibytes_needed" ] ||
    fail "fetching CUDA 12.4 takes $mebibytes_needed MiB and $parent has $free:" \
         'set QPN_VOLTA_TOOLKIT to a folder with room.'
}

# Fetches the lists of the first mirror that answers.
fetch_lists() {
  local mirror='' reached=''
  for mirror in $(mirrors); do
    rm -rf "$part"
    mkdir -p "$part"/apt/{lists,cache/archives}/partial "$part"/{debs,x,bin,nvvm/bin,lib64}
    : > "$part/apt/status"
    echo "deb [signed-by=$keyring] $mirror $suite main contrib non-free" > "$part/apt/sources.list"
    # Not its exit code: a mirror that is away is a warning to apt, and a hook of the system that fails is an error.
    apt_get update
    ls "$part"/apt/lists/*_non-free_binary-*_Packages* > /dev/null 2>&1 && { reached=1; break; }
  done
  [ -n "$mirror" ] || fail "apt's sources name no Debian mirror to fetch CUDA 12.4 from: add one, or $other_way."
  [ -n "$reached" ] ||
    fail "no Debian mirror of apt's sources gives $suite ($(reason)): is the network there? Otherwise $other_way."
}

# unpack PACKAGE [PATTERN...]: downloads it and unpacks all of it, or what matches, into $part/x.
unpack() {
  local package=$1
  shift
  [ $# -eq 0 ] || set -- --wildcards "$@"
  (cd "$part/debs" && apt_get download "$package") || fail "$package of Debian $suite could not be fetched ($(reason))."
  dpkg-deb --fsys-tarfile "$part/debs/$package"_*.deb 2>> "$part/log" |
    tar -x --no-same-owner -C "$part/x" "$@" 2>> "$part/log" ||
    fail "$package of Debian $suite could not be unpacked ($(reason))."
  rm "$part/debs/$package"_*.deb
}

# Moves what was unpacked into NVIDIA's own layout. Debian's wrappers of nvcc, gcc and g++ look for /usr: left out.
# Since 2.41 (Debian 13) glibc declares sinpi, cospi and their float forms, and noexcept: CUDA 12.4 must say the same.
arrange() {
  local library usr=$part/x/usr tools=(bin2c cu++filt cudafe++ cuobjdump fatbinary nvdisasm nvlink nvprune ptxas)
  mv "${tools[@]/#/$usr/bin/}" "$usr"/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} "$part/bin" &&
    mv "$usr/lib/nvidia-cuda-toolkit/bin/cicc" "$part/nvvm/bin" &&
    mv "$usr/lib/nvidia-cuda-toolkit/libdevice" "$part/nvvm" &&
    mv "$usr/include" "$part" &&
    mv "$usr"/lib/*/libcuda*.a "$usr"/lib/*/libcu{blas,blasLt,dart}.so.12* "$part/lib64" &&
    for library in cublas cublasLt cudart; do ln -s "lib$library.so.12" "$part/lib64/lib$library.so" || return; done &&
    sed -i -E -e 's/\b((sin|cos)pi\(double x\)|(sin|cos)pif\(float x\));/\1 QPN_AS_GLIBC;/' \
      -e '1i #include <features.h>\n#if __GLIBC_PREREQ(2, 41)\n#define QPN_AS_GLIBC noexcept(true)' \
      -e '1i #else\n#define QPN_AS_GLIBC\n#endif' "$part/include/crt/math_functions.h" &&
    write_profile "$part"
}

fetch() {
  check_machine
  claim_folder
  usable "$folder" && return
  trap 'rm -rf "$part"' EXIT
  trap 'exit 130' INT TERM
  say "fetching CUDA 12.4 (about 1.3 GB) into $folder"
  fetch_lists
  unpack nvidia-cuda-dev './usr/include/*' '*/libcudart_static.a' '*/libcudadevrt.a'
  unpack nvidia-cuda-toolkit
  unpack libcu++-dev
  unpack libcudart12 '*/libcudart.so.*'  # CMake asks for it, though only the archive is linked
  unpack libcublas12 '*/libcublas.so.*'
  unpack libcublaslt12 '*/libcublasLt.so.*'
  unpack libnccl-dev '*/nccl.h'
  arrange 2>> "$part/log" || fail "Debian's CUDA packages are not laid out as expected ($(reason))."
  printf '%s\n' '#include <cuda_fp16.h>' '#include <cmath>' '__global__ void twice(__half2* x) { *x = __hadd2(*x, *x); }' \
    'int main() { twice<<<1, 1>>>(nullptr); }' > "$part/x/probe.cu"
  "$part/bin/nvcc" -std=c++17 -arch=sm_70 -o "$part/x/probe" "$part/x/probe.cu" > "$part/log" 2>&1 ||
    fail "CUDA 12.4 was fetched but does not compile here ($(reason)): it needs a g++ of release 9 to 13."
  rm -rf "$part"/{x,apt,debs,log}
  echo "$recipe" > "$part/recipe"
  rm -rf "$folder"
  mv -T "$part" "$folder" || fail "$folder could not be put in place."
}

main() {
  local nvcc root
  if ! usable "$folder"; then
    for nvcc in ${CUDACXX:+"$CUDACXX"} nvcc; do
      root=$(root_of "$nvcc") && { echo "$root"; return; }
    done
    fetch
  fi
  # The default g++ may have changed since the fetch.
  if [ -f "$folder/recipe" ] && [ "$(profile)" != "$(cat "$folder/bin/nvcc.profile")" ]; then
    write_profile "$folder"
  fi
  echo "$folder"
}

main "$@"
