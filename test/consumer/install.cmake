# Installs the build tree `build` into an empty `prefix`. A file that should not be there, or is missing, fails.
file(REMOVE_RECURSE "${prefix}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${build}" --prefix "${prefix}" COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/*")
foreach(file IN LISTS installed)
  if(NOT file MATCHES "^(include/qpn/.*\\.(hpp|cuh)|share/cmake/qpn/qpn[-_a-z]*\\.cmake|share/doc/qpn/LICENSE)$")
    message(SEND_ERROR "installed, but expected by nobody: ${file}")
  endif()
endforeach()
file(GLOB_RECURSE headers RELATIVE "${CMAKE_CURRENT_LIST_DIR}/../../include"
     "${CMAKE_CURRENT_LIST_DIR}/../../include/qpn/*")
foreach(header IN LISTS headers)
  if(NOT EXISTS "${prefix}/include/${header}")
    message(SEND_ERROR "not installed: include/${header}")
  endif()
endforeach()
