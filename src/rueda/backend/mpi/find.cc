#include "rueda/backend/mpi/find.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <optional>

#include "rueda/base/process.h"

namespace rueda::backend::mpi {
namespace {

constexpr int kMostAncestors = 8;  // mpirun, a daemon, and a few shells or wrappers between

constexpr std::string_view kStandardFiles[] = {"libmpi_abi.so.1", "libmpi_abi.so.0"};
constexpr std::string_view kOpenMpiFiles[] = {"libmpi.so.40"};
// Debian calls MPICH's library by its other name.
constexpr std::string_view kMpichFiles[] = {"libmpi.so.12", "libmpich.so.12"};

enum class Family { kUnknown, kOpenMpi, kMpich };

bool has(const GetEnv& get_env, const char* name) {
  const char* const text = get_env(name);
  return text != nullptr && *text != '\0';
}

Family family_of(const GetEnv& get_env) {
  if (has(get_env, "OMPI_COMM_WORLD_SIZE")) return Family::kOpenMpi;
  for (const char* name : {"PMI_SIZE", "PMI_PORT", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE", "PALS_RANKID"})
    if (has(get_env, name)) return Family::kMpich;
  return Family::kUnknown;
}

std::vector<std::string> files_of(Family family) {
  std::vector<std::string> files;
  const auto add = [&files](std::span<const std::string_view> names) {
    files.insert(files.end(), names.begin(), names.end());
  };
  if (family != Family::kOpenMpi) add(kMpichFiles);
  if (family == Family::kUnknown) add(kOpenMpiFiles);
  add(kStandardFiles);
  if (family == Family::kOpenMpi) files.insert(files.begin(), kOpenMpiFiles[0].data());
  return files;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string program_of(pid_t pid) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  const ssize_t length = readlink(link.c_str(), path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : std::string();
}

std::vector<std::string> programs_of_ancestors() {
  std::vector<std::string> programs;
  pid_t pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = look_at_process(pid, 0).parent)
    if (std::string program = program_of(pid); !program.empty()) programs.push_back(std::move(program));
  return programs;
}

std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0')
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        return 0;
      },
      &files);
  return files;
}

std::string real_path(const std::string& file) {
  std::array<char, PATH_MAX> path{};
  return realpath(file.c_str(), path.data()) != nullptr ? std::string(path.data()) : file;
}

// If several are loaded, the one that is initialised is the one in use.
Result<std::unique_ptr<Library>> loaded_library() {
  const std::vector<std::string> files = loaded_files();
  std::optional<Result<std::unique_ptr<Library>>> found;
  for (const std::string& file : mpi_files(files)) {
    Result<std::unique_ptr<Library>> library = load_library(file);
    const bool is_in_use = library.is_ok() && library.value()->is_initialized();
    if (!found || is_in_use) found.emplace(std::move(library));
    if (is_in_use) break;
  }
  return found ? *std::move(found) : Result<std::unique_ptr<Library>>(std::unique_ptr<Library>());
}

}  // namespace

bool is_mpi_running() {
  const Result<std::unique_ptr<Library>> loaded = loaded_library();
  return loaded.is_ok() && loaded.value() != nullptr && loaded.value()->is_initialized() &&
         !loaded.value()->is_finalized();
}

std::vector<std::string> mpi_files(std::span<const std::string> loaded) {
  std::vector<std::string> found;
  for (const std::string& path : loaded) {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    // libmpi.so.40, libmpich.so.12, libmpi_abi.so.1, Cray's libmpi_gnu_123.so.12; not libmpi_cxx, libmpifort
    const bool is_c = name.starts_with("libmpi.so") || name.starts_with("libmpich.so") ||
                      name.starts_with("libmpi_abi.so") || name.starts_with("libmpi_gnu") ||
                      name.starts_with("libmpi_cray.so");
    if (is_c) found.push_back(path);
  }
  return found;
}

std::string launcher_name(const GetEnv& get_env) {
  if (has(get_env, "RUEDA_SIZE")) return "rueda run or RUEDA_SIZE";
  switch (family_of(get_env)) {
    case Family::kOpenMpi:
      return "mpirun of Open MPI";
    case Family::kMpich:
      return has(get_env, "I_MPI_HYDRA_TOPOLIB") || has(get_env, "I_MPI_ROOT") ? "mpiexec of Intel MPI"
                                                                               : "mpiexec of MPICH's family";
    case Family::kUnknown:
      break;
  }
  return {};
}

std::string right_launcher(const std::string& version, const GetEnv& get_env) {
  // rueda run has no library of MPI; with --mpi it leaves the ranks to an mpirun.
  if (has(get_env, "RUEDA_SIZE"))
    return "start the ranks with rueda run --mpi, or with the mpirun of " + version +
           ", or unset RUEDA_CPU_OPERATIONS";
  return "start the ranks with the mpirun of " + version +
         ", or set RUEDA_MPI_LIBRARY to the library of that launcher";
}

bool is_sure_to_fail(const Library& library, const GetEnv& get_env) {
  return family_of(get_env) == Family::kOpenMpi && !library.version().starts_with("Open MPI");
}

std::vector<std::string> candidates(const GetEnv& get_env, std::span<const std::string> ancestors,
                                    const std::function<bool(const std::string&)>& exists) {
  const std::vector<std::string> names = files_of(family_of(get_env));
  std::vector<std::string> found;
  for (const std::string& program : ancestors)
    for (const char* folder : {"/../lib/", "/../lib64/", "/../../lib/"})
      for (const std::string& name : names)
        if (const std::string file = folder_of(program) + folder + name; exists(file)) found.push_back(file);
  found.insert(found.end(), names.begin(), names.end());  // as the dynamic linker searches
  return found;
}

Result<std::unique_ptr<Library>> find_library(const std::string& setting, const GetEnv& get_env) {
  Result<std::unique_ptr<Library>> loaded = loaded_library();
  if (!loaded.is_ok() || loaded.value() != nullptr) {
    const bool is_other = loaded.is_ok() && !setting.empty() && setting.find('/') != std::string::npos &&
                          real_path(setting) != real_path(loaded.value()->path());
    if (!is_other) return loaded;
    return Status(Code::kInvalidArgument,
                  "RUEDA_MPI_LIBRARY=" + setting + " is not the MPI that this process has loaded already, " +
                      loaded.value()->describe() + "; unset it, or load the same one everywhere.");
  }
  if (!setting.empty()) return load_library(setting);
  const auto exists = [](const std::string& file) { return access(file.c_str(), R_OK) == 0; };
  const std::vector<std::string> ancestors = programs_of_ancestors();
  std::string tried;
  for (const std::string& file : candidates(get_env, ancestors, exists)) {
    Result<std::unique_ptr<Library>> library = load_library(file);
    if (library.is_ok()) return library;
    if (file.find('/') != std::string::npos) return library;  // it is there, but cannot be used
    tried += (tried.empty() ? "" : ", ") + file;
  }
  return Status(Code::kUnavailable, "no MPI library was found (tried " + tried +
                                        "); set RUEDA_MPI_LIBRARY to its path, or start the ranks with the "
                                        "mpirun of the MPI that you mean.");
}

}  // namespace rueda::backend::mpi
