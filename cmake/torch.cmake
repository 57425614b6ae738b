# The releases of PyTorch that extension modules are built for. WEFT_TORCH lists folders of its package (a wheel of PyTorch
# that was unpacked will do: nothing is imported from it); empty, it is the one that Python3_EXECUTABLE imports.
#
# find_package(Torch) fails on CUDA builds of torch where no CUDA toolkit is installed, so the paths are told here.
set(weft_supported_torch 2.13 2.14 2.15)
set(WEFT_TORCH "" CACHE STRING "folders of PyTorch's package, one for each release to build for")

# Fails for a Python that weft isn't for.
function(weft_check_python)
  if(Python3_VERSION VERSION_GREATER_EQUAL 3.14)
    message(FATAL_ERROR "weft is for Python 3.10 to 3.13, but ${Python3_EXECUTABLE} is ${Python3_VERSION}")
  endif()
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "
import sysconfig
print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))" OUTPUT_VARIABLE without_gil OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(without_gil)
    message(FATAL_ERROR "weft needs Python's GIL, and ${Python3_EXECUTABLE} was built without it")
  endif()
endfunction()

# Sets `result` to the folder of the package that Python imports. Under pip's isolated build `-I` shows the torch of the
# environment that is installed into; where that has none, there is the one that pip has put beside the build's tools.
function(weft_find_torch result)
  foreach(isolation -I -s)  # -s leaves out the packages of the user, which are nobody's environment
    execute_process(
      COMMAND ${Python3_EXECUTABLE} ${isolation} -c "
import importlib.util, os
print(os.path.dirname(importlib.util.find_spec('torch').origin))"
      OUTPUT_VARIABLE folder ERROR_QUIET RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0)
      set(${result} ${folder} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${Python3_EXECUTABLE} has no PyTorch: install torch there first, or configure with "
                      "-DWEFT_BUILD_PYTORCH=OFF.")
endfunction()

# Sets `result` to the release in a folder of PyTorch's package: 2.13.
function(weft_torch_release result folder)
  if(NOT EXISTS ${folder}/include/torch/headeronly/version.h)
    message(FATAL_ERROR "WEFT_TORCH: ${folder} is no folder of PyTorch's package: it has no headers")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/include/torch/headeronly/version.h)
  file(STRINGS ${folder}/include/torch/headeronly/version.h lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" release "${lines}")
  if(NOT release IN_LIST weft_supported_torch)
    list(JOIN weft_supported_torch ", " supported)
    message(FATAL_ERROR "weft is for PyTorch ${supported}, but ${folder} has ${release}")
  endif()
  set(${result} ${release} PARENT_SCOPE)
endfunction()

# Makes the target `target` of the headers and libraries in a folder of PyTorch's package.
function(weft_add_torch target folder)
  add_library(${target} INTERFACE)
  set(include ${folder}/include)
  target_include_directories(${target} SYSTEM INTERFACE ${include} ${include}/torch/csrc/api/include
                             ${Python3_INCLUDE_DIRS})
  target_link_directories(${target} INTERFACE ${folder}/lib)
endfunction()
