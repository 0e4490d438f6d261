# The manual and the shell completion. Section 3 of the manual is made from the headers, with Python
# alone.
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/cairn/*.h)
find_program(CAIRN_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(CAIRN_PYTHON)
  set(functions ${PROJECT_BINARY_DIR}/manual-functions)
  set(script ${PROJECT_SOURCE_DIR}/dev/make_man3.py)
  add_custom_command(OUTPUT ${functions}/stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${functions}/man3
    COMMAND ${CAIRN_PYTHON} -B ${script} ${functions}
    COMMAND ${CMAKE_COMMAND} -E touch ${functions}/stamp
    DEPENDS ${script} ${headers} VERBATIM)
  add_custom_target(manual-functions ALL DEPENDS ${functions}/stamp)
  install(DIRECTORY ${functions}/man3 TYPE MAN)
endif()

# The shell completion needs typer. Its files are short, because they ask the tool itself.
execute_process(COMMAND /usr/bin/python3 -c "import rich, typer"
  RESULT_VARIABLE no_typer OUTPUT_QUIET ERROR_QUIET)
if(no_typer)
  message(STATUS "No shell completion, no manual pages of commands: they need python3-typer and python3-rich")
  return()
endif()
set(completion ${PROJECT_BINARY_DIR}/completion)
set(script ${PROJECT_SOURCE_DIR}/dev/make_completion.py)
add_custom_command(OUTPUT ${completion}/bash ${completion}/zsh ${completion}/fish
  COMMAND /usr/bin/python3 -B ${script} ${completion}
  DEPENDS ${script} ${PROJECT_SOURCE_DIR}/tools/cairn/cli.py VERBATIM)
add_custom_target(completion ALL DEPENDS ${completion}/bash)
install(FILES ${completion}/bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cairn)
install(FILES ${completion}/zsh
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _cairn)
install(FILES ${completion}/fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME cairn.fish)

# Section 1 is made from the tool's own help. Section 7 is made from the documents, with lowdown.
find_program(CAIRN_LOWDOWN lowdown)
if(NOT CAIRN_LOWDOWN)
  message(STATUS "No manual pages of section 7: they need lowdown")
endif()
set(script ${PROJECT_SOURCE_DIR}/dev/make_man.py)
file(GLOB sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/docs/reference/*.md
  ${PROJECT_SOURCE_DIR}/tools/cairn/*.py
  ${PROJECT_SOURCE_DIR}/tools/fleet/cairn_fleet/*.py)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/man
  COMMAND /usr/bin/python3 -B ${script} ${PROJECT_BINARY_DIR}/man
  COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/stamp
  DEPENDS ${script} ${sources} VERBATIM)
add_custom_target(manual ALL DEPENDS ${PROJECT_BINARY_DIR}/man/stamp)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ TYPE MAN PATTERN stamp EXCLUDE)
