#!/usr/bin/env bash
# Builds emp-tool, emp-ot and emp-sh2pc from git checkouts, and the drivers against them:
#
#     build.sh SOURCES OUT [--other]
#
# SOURCES has the checkouts emp-tool, emp-ot and emp-sh2pc; the programs come into OUT. Refuses other commits than
# those below, and changed checkouts; with --other they are built, and the version that a driver prints says so.
# An emp-ot that has a tuner (since July 2026) is tuned for this machine before it is compiled.
# MARCH names a processor for compilers (default native).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

declare -A PINS=(
    [emp-tool]=2ea73a31c54091bd15979ff884e24fa77c3f9673
    [emp-ot]=39b207ec320001c0901c62819bf083194026b6a9
    [emp-sh2pc]=c71f9816bcc0755ea55c4dd98624079920d9f4f6
)
PACKAGES=(emp-tool emp-ot emp-sh2pc)
MARCH=${MARCH:-native}

fail() {
    echo "build.sh: $1" >&2
    exit 1
}

[[ $# -eq 2 || ($# -eq 3 && $3 == --other) ]] || fail "usage: build.sh SOURCES OUT [--other]"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sources=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
other=${3:-}

version=
for package in "${PACKAGES[@]}"; do
    # A folder inside another checkout would give that one's commit.
    [[ -e $sources/$package/.git ]] || fail "$sources/$package is no git checkout"
    commit=$(git -C "$sources/$package" rev-parse HEAD)
    changes=
    [[ -z $(git -C "$sources/$package" status --porcelain) ]] || changes=+changes
    if [[ $commit$changes != "${PINS[$package]}" && -z $other ]]; then
        fail "$package is ${commit:0:7}$changes, wanted is ${PINS[$package]:0:7}; --other builds it"
    fi
    version+=${version:+/}${package#emp-}-${commit:0:7}$changes
done

prefix=$out/installed
build=$out/build
rm -rf "$prefix" "$build"
native=OFF
[[ $MARCH != native ]] || native=ON
tuned=
for package in "${PACKAGES[@]}"; do
    name=EMP_${package#emp-}
    options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" "-DCMAKE_PREFIX_PATH=$prefix")
    options+=("-D${name^^}_BUILD_TESTS=OFF" "-DCMAKE_CXX_FLAGS=-march=$MARCH" "-DCMAKE_C_FLAGS=-march=$MARCH")
    if [[ $package == emp-tool ]]; then options+=("-DEMP_TOOL_NATIVE_ARCH=$native"); fi
    cmake -S "$sources/$package" -B "$build/$package" "${options[@]}"
    # The tuner writes a header that the library is compiled with, and that is installed for the drivers.
    if [[ $package == emp-ot && -e $sources/emp-ot/tools/tune.cpp ]]; then
        cmake --build "$build/emp-ot" --target tune
        tuned=/tuned
    fi
    cmake --build "$build/$package" --parallel
    cmake --install "$build/$package"
done

libraries=("$prefix"/lib*/libemp-ot.* "$prefix"/lib*/libemp-tool.*)
for driver in emp_garbling emp_ot emp_sh2pc emp_circuit; do
    "${CXX:-c++}" -std=c++20 -O3 "-march=$MARCH" -DNDEBUG -Wno-ignored-attributes \
        "-DEMP_VERSION=\"$version$tuned/$MARCH\"" "-I$prefix/include" "$here/$driver.cpp" -o "$out/$driver" \
        "${libraries[@]}" -lssl -lcrypto -pthread
done
echo "built $out: $version$tuned/$MARCH"
