# Compiler settings, dependencies and the helpers that turn a folder into a target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(ELIDEFS_TESTS "Build the tests" ON)
option(ELIDEFS_PRECOMPILE "Precompile the headers that most sources include" ON)
set(ELIDEFS_SANITIZE "" CACHE STRING "Value of -fsanitize=, empty for none")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, RelWithDebInfo or Release" FORCE)
endif()

find_program(ELIDEFS_CCACHE ccache)
if(ELIDEFS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache follows precompiled headers only when told so.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ELIDEFS_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(FUSE3 REQUIRED IMPORTED_TARGET fuse3>=3.12)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)

# Also used by the style test, which compiles every header alone with clang.
set(ELIDEFS_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)
set(ELIDEFS_CLANG_WARNINGS -Wthread-safety -Werror=thread-safety)
set(ELIDEFS_ABSL absl::status absl::statusor absl::strings absl::flat_hash_map absl::flat_hash_set absl::any_invocable
  absl::span absl::inlined_vector absl::cord absl::str_format)

add_library(elidefs_flags INTERFACE)
target_compile_options(elidefs_flags INTERFACE ${ELIDEFS_WARNINGS}
  $<$<CXX_COMPILER_ID:Clang>:${ELIDEFS_CLANG_WARNINGS}>
  $<$<CONFIG:RelWithDebInfo>:-g1>)

# Under a sanitizer programs start without address randomisation: the shadow memory of the compilers' run-time libraries
# does not fit kernels that randomise mmap by more than 28 bits.
set(ELIDEFS_LAUNCHER "")
if(ELIDEFS_SANITIZE)
  add_compile_options(-fsanitize=${ELIDEFS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -UNDEBUG -O1
    -Wno-maybe-uninitialized)  # g++ 12 sees some in instrumented Abseil containers that are not there
  add_link_options(-fsanitize=${ELIDEFS_SANITIZE})
  add_compile_definitions(ELIDEFS_SANITIZED=1)
  find_program(ELIDEFS_SETARCH setarch REQUIRED)
  # halt_on_error: a report ends the process, so a daemon under test cannot go on after one. The options are set here and
  # not as a test property: a list of variables does not survive gtest_discover_tests.
  set(ELIDEFS_LAUNCHER ${CMAKE_COMMAND} -E env
    ASAN_OPTIONS=detect_stack_use_after_return=1
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt
    ${ELIDEFS_SETARCH} -R)
  # CMake runs both test discovery and tests through this.
  set(CMAKE_CROSSCOMPILING_EMULATOR ${ELIDEFS_LAUNCHER})
endif()

# elidefs_precompile(<target> [header...]): the common headers and those named.
function(elidefs_precompile target)
  if(ELIDEFS_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h ${ARGN})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # The first for ccache. The second: g++ 12 sees overruns in Abseil's InlinedVector that are not there, and a
      # precompiled header is no system header to it.
      target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-array-bounds)
    endif()
  endif()
endfunction()

# The .cc files below `folder`, without those named after it (relative to the source tree), become sources of `target`.
# A folder without any gets an empty one, since CMake refuses a library without sources.
function(elidefs_sources target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  foreach(excluded ${ARGN})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${excluded})
  endforeach()
  if(NOT sources)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty_${target}.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "// ${folder} has no sources.\n")
  endif()
  target_sources(${target} PRIVATE ${sources})
endfunction()

# A static library elidefs_<folder> that may use the layers named after it.
function(elidefs_layer folder)
  add_library(elidefs_${folder} STATIC)
  elidefs_sources(elidefs_${folder} ${folder})
  target_include_directories(elidefs_${folder} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(elidefs_${folder} PUBLIC Threads::Threads ${ELIDEFS_ABSL} PRIVATE elidefs_flags)
  foreach(layer ${ARGN})
    target_link_libraries(elidefs_${folder} PUBLIC elidefs_${layer})
  endforeach()
  elidefs_precompile(elidefs_${folder})
  if(folder STREQUAL "blockio")
    target_link_libraries(elidefs_${folder} PRIVATE PkgConfig::URING)
  endif()
endfunction()

# The executable `name` from <folder>/main.cc and the object library elidefs_<folder> from everything else there.
function(elidefs_daemon name folder)
  add_library(elidefs_${folder} OBJECT)
  elidefs_sources(elidefs_${folder} ${folder} ${folder}/main.cc)
  target_include_directories(elidefs_${folder} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(elidefs_${folder} PUBLIC elidefs_core PkgConfig::FUSE3 PRIVATE elidefs_flags)
  elidefs_precompile(elidefs_${folder})
  target_compile_definitions(elidefs_${folder} PUBLIC ELIDEFS_VERSION="${PROJECT_VERSION}")
  file(GLOB main CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/main.cc)
  if(main)
    add_executable(${name} ${main})
    target_link_libraries(${name} PRIVATE elidefs_${folder} elidefs_flags)
  endif()
endfunction()
