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

# qpn_add_gpu_program(name timeout_seconds source...)
# An executable of CUDA sources that a machine with nothing but a driver can run. As a test it is labelled gpu, and is
# skipped as a whole where it exits 77: there is no GPU.
function(qpn_add_gpu_program name timeout)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE qpn::cuda qpn_warnings)
  set_target_properties(${name} PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static)
  if(QPN_BUILD_TESTS)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    # One after another: they fill the GPU, and some of them most of its memory.
    set_tests_properties(${name} PROPERTIES LABELS gpu TIMEOUT ${timeout} SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu)
  endif()
endfunction()
