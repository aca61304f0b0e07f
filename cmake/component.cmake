# trireme_component(<name> [COLD] [PATIENT suites] [DEPS targets...])
#
# One library per folder under src/, made of every .cc in it (and below it), and one test program made of
# every *_test.cc. COLD: see trireme_compile. PATIENT: see trireme_fast_tests. A component may link only components below it; tests/include_graph checks that.
function(trireme_component name)
  cmake_parse_arguments(ARG "" "PATIENT" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  if(sources)
    add_library(trireme_${name} STATIC ${sources})
    set(scope PUBLIC)
    trireme_compile(trireme_${name} ${ARG_UNPARSED_ARGUMENTS})
  else()
    add_library(trireme_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(trireme_${name} ${scope} ${TRIREME_INCLUDE})
  target_link_libraries(trireme_${name} ${scope} ${ARG_DEPS})

  if(TRIREME_TESTS AND tests)
    add_executable(${name}_test ${tests})
    trireme_compile(${name}_test TEST)
    target_link_libraries(${name}_test PRIVATE trireme_${name} GTest::gtest_main)
    trireme_fast_tests(${name} ${ARG_PATIENT})
  endif()
endfunction()

# trireme_fast_tests(<name> [suites]): the tests of the program <name>_test. Those of `suites` ("A.*:B.*"), which wait for processes and
# time limits, have the label patient instead of fast.
function(trireme_fast_tests name)
  add_dependencies(fast_tests ${name}_test)
  # gRPC is not instrumented: see the two files.
  set(notes ${PROJECT_SOURCE_DIR}/src/rpc)
  if(TRIREME_SANITIZE MATCHES "thread")
    set(options "TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=${notes}/tsan.supp")
  else()
    # LeakSanitizer guesses where thread-local variables of libraries that were loaded later lie, and reads there:
    # of gRPC's it guesses wrong. They are found without, through what glibc keeps of them.
    set(options "LSAN_OPTIONS=intercept_tls_get_addr=0:suppressions=${notes}/lsan.supp")
  endif()
  set(properties TIMEOUT 120 ENVIRONMENT ${options})
  if(ARGN)
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. TEST_FILTER "-${ARGN}" PROPERTIES LABELS fast ${properties})
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. TEST_FILTER "${ARGN}" TEST_LIST ${name}_patient_tests
      PROPERTIES LABELS patient ${properties})
  else()
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. PROPERTIES LABELS fast ${properties})
  endif()
endfunction()
