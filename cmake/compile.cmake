# What keeps the build short. Most of the time of a small source goes into the headers of the standard library, and most of
# the rest into optimising what runs once.
#
# A source must include what it uses all the same: the fuzz preset builds without precompiled headers, and finds out.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)  # else nothing that uses a precompiled header is found in the cache
endif()

set(headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)
add_library(trireme_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
target_link_libraries(trireme_headers PRIVATE fmt::fmt)
target_precompile_headers(trireme_headers PRIVATE ${headers})
if(TRIREME_TESTS)
  add_library(trireme_test_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
  target_link_libraries(trireme_test_headers PRIVATE fmt::fmt GTest::gtest)
  target_precompile_headers(trireme_test_headers PRIVATE ${headers} <gtest/gtest.h>)
endif()

# trireme_compile(<target> [COLD|TEST]): how its sources are compiled. COLD is for what no training step runs through.
function(trireme_compile target)
  cmake_parse_arguments(ARG "COLD;TEST" "" "" ${ARGN})
  if(ARG_TEST)
    target_precompile_headers(${target} REUSE_FROM trireme_test_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM trireme_headers)
  endif()
  if(ARG_COLD OR ARG_TEST)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
