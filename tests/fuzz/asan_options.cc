// SPDX-License-Identifier: Apache-2.0
// Inputs are short and many: what one of them frees is kept back for some of them, not for thousands, and an allocation is filled as far as
// small objects go. Else targets that allocate much do little else.
#ifndef MLNET_FUZZ_ASAN_MORE
#define MLNET_FUZZ_ASAN_MORE ""
#endif

extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=4:max_malloc_fill_size=64:malloc_context_size=3" MLNET_FUZZ_ASAN_MORE;
}
