# Compiler and linker flags, in two interface targets:
#   cairn_flags         for everything that is compiled here: warnings, sanitizer, processor
#   cairn_library_flags for the allocators' own sources on top of it

add_library(cairn_flags INTERFACE)

# Signedness is checked in the C sources only: clang counts it to -Wconversion, gcc in C++ does not.
target_compile_options(cairn_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wpointer-arith -Wcast-align -Wcast-qual
  -Wwrite-strings -Wundef -Wformat=2 -Wvla -Wimplicit-fallthrough
  $<$<COMPILE_LANGUAGE:C>:-Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wold-style-definition>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>)
# Default in C++14 and later, but for clang before 19.
target_compile_options(cairn_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsized-deallocation>)
if(CAIRN_WERROR)
  target_compile_options(cairn_flags INTERFACE -Werror)
endif()
if(CAIRN_NATIVE)
  target_compile_options(cairn_flags INTERFACE -march=native)
endif()

# Debug builds keep some optimisation: the tests' loops are long.
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

if(CAIRN_SANITIZER)
  if(NOT CAIRN_SANITIZER MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "CAIRN_SANITIZER is '${CAIRN_SANITIZER}'; it can be address, undefined, "
                        "both as address,undefined, thread or empty.")
  endif()
  target_compile_options(cairn_flags INTERFACE
    -fsanitize=${CAIRN_SANITIZER} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZER})
endif()

# Coverage for libFuzzer, whose main is linked into the fuzzers only.
if(CAIRN_FUZZ)
  target_compile_options(cairn_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(cairn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ThreadSanitizer's shadow of gcc 12 and clang 14 cannot follow the address randomisation of newer
# kernels (vm.mmap_rnd_bits above 28), so its tests run without; containers may forbid that.
if(CAIRN_SANITIZER STREQUAL "thread")
  execute_process(COMMAND setarch -R true RESULT_VARIABLE refused ERROR_QUIET)
  if(refused EQUAL 0)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch -R)
  endif()
endif()

add_library(cairn_library_flags INTERFACE)
target_link_libraries(cairn_library_flags INTERFACE cairn_flags)

# -fno-builtin-*: the compiler must not turn our malloc and memset into a call of calloc, nor
# drop a pair of allocation and free as without effect.
# initial-exec: one load reaches the thread heap, and no __tls_get_addr, which may itself call
# malloc; the library needs a few bytes of static TLS only, so it can still be dlopened.
# no vectors: no loop here is long, and their constants would be the only ones that a start reads,
# 64 KiB of resident memory (decision 29).
# frame pointers: where the library is called is found by them, os/stack_walk.c; the fast paths are
# leaves and have none.
target_compile_options(cairn_library_flags INTERFACE
  -fno-omit-frame-pointer -momit-leaf-frame-pointer -fno-tree-vectorize -fno-tree-slp-vectorize
  -fvisibility=hidden -ftls-model=initial-exec -fno-plt -fno-semantic-interposition
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
  -fno-builtin-aligned_alloc -fno-builtin-memalign -fno-builtin-posix_memalign)

# Nor vectors for the smaller of two numbers.
include(CheckCCompilerFlag)
check_c_compiler_flag(-mno-stv CAIRN_HAS_NO_STV)
if(CAIRN_HAS_NO_STV)
  target_compile_options(cairn_library_flags INTERFACE -mno-stv)
endif()

# cairn_shared_link_options(TARGET): link options of a shared library of ours.
function(cairn_shared_link_options target)
  target_link_options(${target} PRIVATE
    LINKER:-z,now LINKER:-z,relro LINKER:-z,noexecstack LINKER:--as-needed
    # Threads' ends and fork call back into the library: dlclose must leave it where it is.
    LINKER:-z,nodelete
    # The library's calls of its own exported functions need no symbol looked up at each start; no
    # program may put its own in their place.
    LINKER:-Bsymbolic-functions)
  # A sanitizer's runtime comes with the executable, so its symbols stay open here.
  if(NOT CAIRN_SANITIZER)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set(map ${PROJECT_SOURCE_DIR}/src/front/cairn.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()
