# SPDX-License-Identifier: Apache-2.0
# Toolchain file: from Debian on another machine for Debian 12 on arm64, with the libraries in MLNET_SYSROOT. See tools/build-arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MLNET_SYSROOT)
set(CMAKE_SYSROOT "${MLNET_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${MLNET_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${MLNET_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${MLNET_SYSROOT}/usr/share/pkgconfig")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${MLNET_SYSROOT}")  # mlnetctl writes its completions itself
