# SPDX-License-Identifier: Apache-2.0
# mlnet_bpf_object(NAME source): compiles a BPF program and generates its skeleton.
#   target NAME_skel   INTERFACE, gives #include "NAME.skel.h" and links libbpf
#   file   bpf/NAME.bpf.o in the build folder
find_program(MLNET_BPF_CLANG NAMES clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 clang REQUIRED)
find_program(MLNET_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)
pkg_check_modules(LIBBPF REQUIRED IMPORTED_TARGET libbpf)

function(mlnet_bpf_object name source)
  set(dir "${CMAKE_BINARY_DIR}/bpf")
  set(object "${dir}/${name}.bpf.o")
  set(skeleton "${dir}/${name}.skel.h")
  file(MAKE_DIRECTORY "${dir}")
  add_custom_command(OUTPUT "${object}"
    COMMAND ${MLNET_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -std=gnu11 -Wall -Wextra -Werror
            -I "${CMAKE_SOURCE_DIR}/bpf" -I "${CMAKE_SOURCE_DIR}/bpf/abi" -isystem "${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}"
            -MMD -MF "${object}.d" -MT "${object}" -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" DEPFILE "${object}.d"
    COMMENT "BPF ${name}" VERBATIM)
  add_custom_command(OUTPUT "${skeleton}"
    COMMAND sh -c "'${MLNET_BPFTOOL}' gen skeleton '${object}' name ${name} > '${skeleton}.tmp' && mv '${skeleton}.tmp' '${skeleton}'"
    DEPENDS "${object}" COMMENT "skeleton ${name}" VERBATIM)
  add_custom_target(${name}_gen DEPENDS "${skeleton}")
  add_library(${name}_skel INTERFACE)
  add_dependencies(${name}_skel ${name}_gen)
  target_include_directories(${name}_skel SYSTEM INTERFACE "${dir}")
  target_include_directories(${name}_skel INTERFACE "${CMAKE_SOURCE_DIR}/bpf/abi")
  target_link_libraries(${name}_skel INTERFACE PkgConfig::LIBBPF)
endfunction()
