# SPDX-License-Identifier: Apache-2.0
# mlnet_flags: what every C++ target of this project is compiled with.
add_library(mlnet_flags INTERFACE)
target_compile_features(mlnet_flags INTERFACE cxx_std_20)
target_compile_options(mlnet_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wnon-virtual-dtor -Wshadow>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-missing-field-initializers>  # LIBBPF_OPTS clears what it does not name
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror>)
target_compile_definitions(mlnet_flags INTERFACE MLNET_VERSION="${MLNET_VERSION}")
if(MLNET_SANITIZE)
  target_compile_options(mlnet_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer)
  target_link_options(mlnet_flags INTERFACE -fsanitize=address,undefined)
endif()
if(MLNET_FUZZ)
  # AFL++'s own compiler is a clang of Debian's choice; its runtime goes with any.
  set(instrumented $<IF:$<BOOL:${MLNET_AFL}>,-fsanitize-coverage=trace-pc-guard,-fsanitize=fuzzer-no-link>)
  set(checked $<IF:$<BOOL:${MLNET_FUZZ_LIGHT}>,undefined,address$<COMMA>undefined>)
  set(compared $<$<BOOL:${MLNET_FUZZ_LIGHT}>:-fno-sanitize-coverage=trace-cmp>) # a quarter of store's time; the other runs look for what is compared
  target_compile_options(mlnet_flags INTERFACE ${instrumented} ${compared} -fsanitize=${checked} -fno-sanitize-recover=undefined
                         -Wno-deprecated-declarations) # of libstdc++ about itself, as clang sees it
  target_link_options(mlnet_flags INTERFACE -fsanitize=${checked})
endif()
# Everything may end up in the shared library or in the Python extension.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

include(MlnetHeaders)
