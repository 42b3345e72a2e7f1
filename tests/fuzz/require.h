// SPDX-License-Identifier: Apache-2.0
// A property of a target that does not hold ends the run, as a crash does.
#pragma once

#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition)                                                             \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                    \
    }                                                                                  \
  } while (false)
