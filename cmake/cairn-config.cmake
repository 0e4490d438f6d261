include(${CMAKE_CURRENT_LIST_DIR}/cairn-targets.cmake)
