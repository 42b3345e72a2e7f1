# SPDX-License-Identifier: Apache-2.0
# mlnet_test(TIER NAME sources... [LIBS ...]): one GoogleTest binary, registered with CTest under its tier's label.
#   Tiers: unit bpf sim lab torch. The binary is tests/bin/TIER_NAME; its CTest name is TIER.NAME.
#   UNITY: its files may be compiled several at a time, where CMAKE_UNITY_BUILD asks for it: for those of many files.
#   BOTH_FAMILIES: it uses the harness's addresses, and runs once more with IPv6 ones, as TIER.NAME_ipv6.
find_package(GTest REQUIRED)
include(GoogleTest)

function(mlnet_test tier name)
  cmake_parse_arguments(arg "BOTH_FAMILIES;UNITY" "TIMEOUT" "LIBS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(target "${tier}_${name}")
  add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${target} PRIVATE mlnet_flags GTest::gtest GTest::gmock GTest::gtest_main ${arg_LIBS})
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bin")
  if(tier MATCHES "^(unit|lab)$")
    target_compile_options(${target} PRIVATE -O0)  # what they test is optimised; their own code has nothing to gain but compile time
    mlnet_precompile(${target} mlnet_test_headers)
  endif()
  if(NOT arg_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
  add_test(NAME ${tier}.${name} COMMAND ${target})
  set_tests_properties(${tier}.${name} PROPERTIES LABELS ${tier} TIMEOUT ${arg_TIMEOUT})
  if(arg_BOTH_FAMILIES)
    add_test(NAME ${tier}.${name}_ipv6 COMMAND ${target})
    set_tests_properties(${tier}.${name}_ipv6 PROPERTIES LABELS ${tier} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT MLNET_TEST_IP=6)
  endif()
endfunction()
