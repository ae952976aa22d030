# libweft-mpi-openmpi.so and libweft-mpi-mpich.so: what knows an MPI's types, a module for each that is there to be built with
# (scripts/setup.sh mpi). The program opens the one whose launcher started it; without a launcher it opens none.
foreach(kind openmpi mpich)
  find_program(WEFT_MPICC_${kind} NAMES mpicc.${kind} DOC "The compiler of ${kind}: without it, weft does not run under its mpirun")
  if(WEFT_MPICC_${kind} AND NOT CMAKE_CROSSCOMPILING)
    set(module ${PROJECT_BINARY_DIR}/libweft-mpi-${kind}.so)
    add_custom_command(OUTPUT ${module} DEPENDS ${PROJECT_SOURCE_DIR}/mpi/module.c ${PROJECT_SOURCE_DIR}/src/device/mpi_module.h
      COMMAND ${WEFT_MPICC_${kind}} -std=c17 -O2 -g -Wall -Wextra -pthread -fPIC -shared -fvisibility=hidden -I${PROJECT_SOURCE_DIR}/src
              ${PROJECT_SOURCE_DIR}/mpi/module.c -o ${module} VERBATIM)
    add_custom_target(weft_mpi_${kind} ALL DEPENDS ${module})
    if(WEFT_INSTALL)
      install(PROGRAMS ${module} DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft COMPONENT weft-mpi)
    endif()
  endif()
endforeach()
