# SPDX-License-Identifier: Apache-2.0
# Headers that most files read, compiled once: nlohmann-json alone is a third of the time that a file takes, CLI11 takes 9 s.
#   mlnet_precompile(TARGET mlnet_headers|mlnet_cli_headers|mlnet_test_headers)
# Sources include what they use all the same: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

set(headers <algorithm> <array> <chrono> <filesystem> <fstream> <functional> <map> <memory> <optional> <set> <string> <vector>
            <nlohmann/json.hpp> <tl/expected.hpp>)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/headers.cc" CONTENT "")
set(names mlnet_headers mlnet_cli_headers)
if(NOT MLNET_AGGREGATOR_ONLY)
  find_package(GTest REQUIRED)
  list(APPEND names mlnet_test_headers)
endif()
foreach(name IN LISTS names)
  add_library(${name} STATIC "${CMAKE_BINARY_DIR}/headers.cc")
  target_link_libraries(${name} PRIVATE mlnet_flags nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE ${headers})
endforeach()
target_link_libraries(mlnet_cli_headers PRIVATE CLI11::CLI11)
target_precompile_headers(mlnet_cli_headers PRIVATE <CLI/CLI.hpp>)
if(NOT MLNET_AGGREGATOR_ONLY)
  target_link_libraries(mlnet_test_headers PRIVATE GTest::gtest GTest::gmock)
  target_precompile_headers(mlnet_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  target_compile_options(mlnet_test_headers PRIVATE -O0) # as the tests
endif()
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC) # programs read the same ones as libraries, so they have the same flags
endif()

function(mlnet_precompile target headers)
  target_precompile_headers(${target} REUSE_FROM ${headers})
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    # From a precompiled header GCC 12 no longer knows that libstdc++ is the system's, whose false alarms (in std::string) it would hide.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  endif()
endfunction()
