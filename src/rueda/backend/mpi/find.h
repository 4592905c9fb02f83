// Which MPI library this process should use: the one that it has loaded, the one that a setting names, or the
// one that belongs to the launcher. The choice is pure; looking at the process is not.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/backend/mpi/library.h"
#include "rueda/base/status.h"

namespace rueda::backend::mpi {

using GetEnv = std::function<const char*(const char*)>;

// Which of these files, which the process has loaded, are MPI libraries.
std::vector<std::string> mpi_files(std::span<const std::string> loaded);

// The MPI that the environment of this process is from, in words: "Open MPI's mpirun", or empty.
std::string launcher_name(const GetEnv& get_env);

// What to do where this process has another launcher than the library belongs to. version: of the library.
std::string right_launcher(const std::string& version, const GetEnv& get_env);

// Whether this library cannot be initialised under this launcher: under mpirun of Open MPI, others end the
// process in MPI_Init. The reverse is found out later, by its ranks.
bool is_sure_to_fail(const Library& library, const GetEnv& get_env);

// What to try to load, best first. ancestors: the programs of the parent, its parent, and so on: an MPI
// launcher has its library beside it. exists: whether there is such a file.
std::vector<std::string> candidates(const GetEnv& get_env, std::span<const std::string> ancestors,
                                    const std::function<bool(const std::string&)>& exists);

// Whether the program has initialised an MPI in this process, and not finalised it.
bool is_mpi_running();

// Loads the library. setting: RUEDA_MPI_LIBRARY, empty = look for one.
Result<std::unique_ptr<Library>> find_library(const std::string& setting, const GetEnv& get_env);

}  // namespace rueda::backend::mpi
