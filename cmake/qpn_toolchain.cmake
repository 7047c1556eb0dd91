# What qpn's own targets (tests, benchmarks, examples) are built with. Users of the library never see it.
#   qpn_warnings     warnings as errors
#   qpn_build_flags  C++20, the warnings, the sanitizers of QPN_SANITIZE
#   qpn_with_cuda    whether targets that need nvcc are built

add_library(qpn_warnings INTERFACE)
target_compile_options(qpn_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Wno-maybe-uninitialized;-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")

add_library(qpn_build_flags INTERFACE)
target_link_libraries(qpn_build_flags INTERFACE qpn_warnings)
target_compile_features(qpn_build_flags INTERFACE cxx_std_20)
# A fused multiply-add is written where it is meant: results may not depend on what a compiler contracts.
target_compile_options(qpn_build_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>")
if(QPN_SANITIZE)
  target_compile_options(qpn_build_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${QPN_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(qpn_build_flags INTERFACE "-fsanitize=${QPN_SANITIZE}")
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(qpn_ccache ccache)
  if(qpn_ccache AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${qpn_ccache}")
  endif()
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
  endif()
endif()

# Stops with one sentence if this nvcc cannot compile for a wanted architecture; CMake's own check of the
# compiler would fail first, with a page of nvcc's output.
function(qpn_check_cuda_architectures nvcc)
  execute_process(COMMAND "${nvcc}" --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" version "${version}")
  set(version "${CMAKE_MATCH_1}")
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+" number "${architecture}")
    if(number AND known AND NOT known MATCHES "compute_${number}[^0-9]")
      if(number STREQUAL "70")
        set(needed "sm_70 needs CUDA 12.4 (any release before 13.0 that takes C++17 should do)")
      else()
        set(needed "sm_${architecture} needs another release")
      endif()
      message(FATAL_ERROR "qpn: ${needed}, but ${nvcc} is CUDA ${version}: put the right nvcc first on PATH "
                          "or set CMAKE_CUDA_COMPILER.")
    endif()
  endforeach()
endfunction()

# The host half never needs nvcc; the cuda presets demand it, everything else goes on without.
set(qpn_with_cuda FALSE)
if(NOT QPN_CUDA STREQUAL "OFF")
  if(qpn_nvcc)
    qpn_check_cuda_architectures("${qpn_nvcc}")
  endif()
  if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(qpn_with_cuda TRUE)
  elseif(QPN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "QPN_CUDA=ON, but no working nvcc was found: put it on PATH or set CMAKE_CUDA_COMPILER.")
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT qpn_with_cuda)
  message(STATUS "qpn: host-only build (no nvcc used): checks of the headers through nvcc are left out")
endif()
