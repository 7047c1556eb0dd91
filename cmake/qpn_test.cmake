# qpn_add_test(name SOURCES a.cpp ... [LIBS target ...] [LABELS host] [TIMEOUT seconds])
# One GoogleTest executable and one ctest entry, run in the source folder of its CMakeLists.txt so
# that fixtures are found by relative path.

if(QPN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

function(qpn_add_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT QPN_BUILD_TESTS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS host)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} qpn::qpn qpn_build_flags GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
