# The library: INTERFACE targets, install rules and the package, in two components.
#   host  qpn::qpn    headers that a plain C++17 compiler takes (.hpp)
#   cuda  qpn::cuda   adds the CUDA runtime, for the .cuh headers

add_library(qpn INTERFACE)
add_library(qpn::qpn ALIAS qpn)
target_compile_features(qpn INTERFACE cxx_std_17)
target_include_directories(qpn INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
find_package(Threads REQUIRED)
target_link_libraries(qpn INTERFACE Threads::Threads)

add_library(qpn_cuda INTERFACE)
add_library(qpn::cuda ALIAS qpn_cuda)
set_target_properties(qpn_cuda PROPERTIES EXPORT_NAME cuda)
target_link_libraries(qpn_cuda INTERFACE qpn)
if(NOT QPN_CUDA STREQUAL "OFF")
  # Headers and libraries of the compiler that is asked for, even where another toolkit's is on PATH.
  find_program(qpn_nvcc NAMES "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" nvcc NO_CACHE)
  if(qpn_nvcc AND NOT CUDAToolkit_ROOT)
    cmake_path(GET qpn_nvcc PARENT_PATH CUDAToolkit_ROOT)
    cmake_path(GET CUDAToolkit_ROOT PARENT_PATH CUDAToolkit_ROOT)
  endif()
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    # Installed, the package finds the consumer's own toolkit instead.
    target_link_libraries(qpn_cuda INTERFACE "$<BUILD_INTERFACE:CUDA::cudart_static>")
  endif()
endif()

if(QPN_INSTALL)
  include(CMakePackageConfigHelpers)
  set(qpn_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/qpn")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/qpn" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  install(TARGETS qpn EXPORT qpn_host_targets)
  install(TARGETS qpn_cuda EXPORT qpn_cuda_targets)
  install(EXPORT qpn_host_targets NAMESPACE qpn:: DESTINATION "${qpn_package_dir}")
  install(EXPORT qpn_cuda_targets NAMESPACE qpn:: DESTINATION "${qpn_package_dir}")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/qpn-config.cmake.in"
    "${PROJECT_BINARY_DIR}/qpn-config.cmake" INSTALL_DESTINATION "${qpn_package_dir}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/qpn-config-version.cmake"
    COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
  install(FILES "${PROJECT_BINARY_DIR}/qpn-config.cmake" "${PROJECT_BINARY_DIR}/qpn-config-version.cmake"
          DESTINATION "${qpn_package_dir}")
endif()
