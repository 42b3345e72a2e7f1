# SPDX-License-Identifier: Apache-2.0
# mlnet_flags: what every C++ target of this project is compiled with.
add_library(mlnet_flags INTERFACE)
target_compile_features(mlnet_flags INTERFACE cxx_std_20)
target_compile_options(mlnet_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wnon-virtual-dtor -Wshadow>
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror>)
target_compile_definitions(mlnet_flags INTERFACE MLNET_VERSION="${MLNET_VERSION}")
if(MLNET_SANITIZE)
  target_compile_options(mlnet_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer)
  target_link_options(mlnet_flags INTERFACE -fsanitize=address,undefined)
endif()
if(MLNET_FUZZ)
  target_compile_options(mlnet_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
                         -Wno-deprecated-declarations) # of libstdc++ about itself, as clang sees it
  target_link_options(mlnet_flags INTERFACE -fsanitize=address,undefined)
endif()
# Everything may end up in the shared library or in the Python extension.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC) # programs read the same precompiled headers as libraries, so they have the same flags
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# Headers that most files read, compiled once: nlohmann-json alone is a third of the time that a file takes.
#   target_precompile_headers(NAME REUSE_FROM mlnet_headers)
find_package(nlohmann_json REQUIRED)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/headers.cc" CONTENT "")
add_library(mlnet_headers STATIC "${CMAKE_BINARY_DIR}/headers.cc")
target_link_libraries(mlnet_headers PRIVATE mlnet_flags nlohmann_json::nlohmann_json)
target_precompile_headers(mlnet_headers PRIVATE <algorithm> <array> <chrono> <filesystem> <functional> <map> <memory> <optional> <set>
                          <string> <vector> <nlohmann/json.hpp> <tl/expected.hpp>)
