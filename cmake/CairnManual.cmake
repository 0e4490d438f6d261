# The manual pages, where what makes them is there: Debian's python3-click-man and lowdown.
find_program(CAIRN_LOWDOWN lowdown)
execute_process(COMMAND /usr/bin/python3 -c "import click_man.core, typer"
  RESULT_VARIABLE no_click_man OUTPUT_QUIET ERROR_QUIET)
if(no_click_man OR NOT CAIRN_LOWDOWN)
  message(STATUS "No manual pages: they need python3-click-man and lowdown")
  return()
endif()
set(script ${PROJECT_SOURCE_DIR}/dev/make_man.py)
file(GLOB sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/tools/cairn/*.py)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/stamp
  COMMAND /usr/bin/python3 -B ${script} ${PROJECT_BINARY_DIR}/man
  COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/stamp
  DEPENDS ${script} ${sources} VERBATIM)
add_custom_target(manual ALL DEPENDS ${PROJECT_BINARY_DIR}/man/stamp)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ TYPE MAN PATTERN stamp EXCLUDE)
