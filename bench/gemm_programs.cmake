# gemm_roofline, gemm_chain and gemm_tune: kernels behind plain functions in nvcc, everything else in the host's compiler. They run
# on a machine that has only a driver, where cuBLAS takes part also its library.

find_package(CUDAToolkit REQUIRED)

add_library(qpn_bench_gpu STATIC
  support/cold_weights.cpp
  support/gemm_launches.cpp
  support/library_calls.cu
  support/machine.cpp
  support/nvml.cpp
  support/output_sample.cpp
  support/planned_gemm.cpp
  support/random_fill.cu
  support/read_ceiling.cpp
  support/read_kernel.cu
  support/reference_sums.cu)
target_link_libraries(qpn_bench_gpu PUBLIC qpn_bench_support qpn::cuda ${CMAKE_DL_LIBS} PRIVATE qpn_build_flags)
set_target_properties(qpn_bench_gpu PROPERTIES
  CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static)

add_executable(gemm_chain gemm_chain/main.cpp gemm_chain/chain_run.cpp)
target_link_libraries(gemm_chain PRIVATE gemm_bench_parts qpn_bench_gpu qpn_build_flags)

add_executable(gemm_tune gemm_tune/main.cpp gemm_tune/tuner.cpp)
target_link_libraries(gemm_tune PRIVATE gemm_bench_parts qpn_bench_gpu qpn_build_flags)

add_executable(gemm_roofline gemm_roofline/main.cpp gemm_roofline/loaded_shape.cpp gemm_roofline/session.cpp)
target_link_libraries(gemm_roofline PRIVATE gemm_bench_parts qpn_bench_gpu qpn_build_flags)
if(TARGET CUDA::cublas)
  target_sources(gemm_roofline PRIVATE gemm_roofline/cublas.cpp)
  target_link_libraries(gemm_roofline PRIVATE CUDA::cublas)
else()
  message(STATUS "qpn: cuBLAS was not found: gemm_roofline leaves its times out")
  target_sources(gemm_roofline PRIVATE gemm_roofline/without_cublas.cpp)
endif()

# Without the archive a copy of the shared library beside the program will do on another machine.
find_library(qpn_benchmark_archive libbenchmark.a NO_CACHE)
if(qpn_benchmark_archive)
  target_include_directories(gemm_roofline PRIVATE
    $<TARGET_PROPERTY:benchmark::benchmark,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(gemm_roofline PRIVATE BENCHMARK_STATIC_DEFINE)
  target_link_libraries(gemm_roofline PRIVATE "${qpn_benchmark_archive}" Threads::Threads)
else()
  target_link_libraries(gemm_roofline PRIVATE benchmark::benchmark)
  set_target_properties(gemm_roofline PROPERTIES BUILD_RPATH "$ORIGIN")
endif()
set_target_properties(gemm_chain gemm_roofline gemm_tune PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static)
