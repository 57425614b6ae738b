# Most of a compiler's time goes to headers: the standard library's, LLVM's, PyTorch's. weft_join_sources(target 8) has
# eight files of the target compiled as one, which share them. Names in anonymous namespaces are then unique in a target.
# Every file compiles by itself too, with WEFT_UNITY=OFF; `make nightly` has clang-tidy read them so.
function(weft_join_sources target files_at_once)
  if(WEFT_UNITY)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files_at_once} UNITY_BUILD_RELOCATABLE ON)
  endif()
endfunction()
