#include "rueda/store/innermost.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "rueda/store/environment.h"
#include "rueda/store/slurm.h"

namespace rueda::store {
namespace {

using Texts = std::span<const std::string_view>;

struct Family {
  std::string_view name;
  Texts marks;     // variables that tell one rank of one job from another
  size_t shows;    // how many of them, from the first one, show that the family is there
  Texts prefixes;  // of the variables that say something about a rank
  Texts programs;  // of processes that start ranks, and of which no other family has one of that name
  const char* size = nullptr;  // the variable with the size of the world
};

constexpr std::array<std::string_view, 5> kTorchrunMarks = {
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE", "MASTER_PORT"};
constexpr std::array<std::string_view, 4> kOpenMpiMarks = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                           "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"};
constexpr std::array<std::string_view, 7> kPmiMarks = {
    "PMI_RANK", "PMI_ID", "MV2_COMM_WORLD_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_JOBID"};
constexpr std::array<std::string_view, 3> kFluxMarks = {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_ID"};
constexpr std::array<std::string_view, 2> kJsmMarks = {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"};
constexpr std::array<std::string_view, 2> kPmixMarks = {"PMIX_RANK", "PMIX_NAMESPACE"};
constexpr std::array<std::string_view, 4> kSlurmMarks = {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
                                                         "SLURM_PROCID", "SLURM_JOB_ID"};

constexpr std::array<std::string_view, 5> kTorchrunPrefixes = {"TORCHELASTIC_", "RANK", "WORLD_SIZE",
                                                               "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr std::array<std::string_view, 1> kOpenMpiPrefixes = {"OMPI_COMM_WORLD_"};
constexpr std::array<std::string_view, 4> kPmiPrefixes = {"PMI_", "MPI_LOCAL", "MV2_COMM_WORLD_", "PALS_"};
constexpr std::array<std::string_view, 2> kFluxPrefixes = {"FLUX_TASK_", "FLUX_JOB_"};
constexpr std::array<std::string_view, 1> kJsmPrefixes = {"JSM_NAMESPACE_"};
constexpr std::array<std::string_view, 1> kPmixPrefixes = {"PMIX_"};
constexpr std::array<std::string_view, 3> kSlurmPrefixes = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP"};

constexpr std::array<std::string_view, 6> kOpenMpiPrograms = {"orted",   "orterun", "mpirun.openmpi",
                                                              "prterun", "prted",   "prte"};
constexpr std::array<std::string_view, 1> kPmiPrograms = {"hydra_pmi_proxy"};
constexpr std::array<std::string_view, 1> kFluxPrograms = {"flux-shell"};
constexpr std::array<std::string_view, 1> kSlurmPrograms = {"slurmstepd"};

// In the order of detection.
const std::array<Family, 7> kFamilies = {{
    {"torchrun", kTorchrunMarks, 1, kTorchrunPrefixes, {}, "WORLD_SIZE"},
    {"openmpi", kOpenMpiMarks, 2, kOpenMpiPrefixes, kOpenMpiPrograms, "OMPI_COMM_WORLD_SIZE"},
    {"pmi", kPmiMarks, 3, kPmiPrefixes, kPmiPrograms, "PMI_SIZE"},
    {"flux", kFluxMarks, 2, kFluxPrefixes, kFluxPrograms, "FLUX_JOB_SIZE"},
    {"jsm", kJsmMarks, 2, kJsmPrefixes, {}, "JSM_NAMESPACE_SIZE"},
    {"pmix", kPmixMarks, 1, kPmixPrefixes, {}, nullptr},
    {"slurm", kSlurmMarks, 1, kSlurmPrefixes, kSlurmPrograms, "SLURM_STEP_NUM_TASKS"},
}};

bool contains(Texts texts, std::string_view one) { return std::ranges::find(texts, one) != texts.end(); }

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(kFamilies, name, &Family::name);
  return found == kFamilies.end() ? nullptr : &*found;
}

bool is_present(const Family& family, const Environment& env) {
  return std::ranges::any_of(family.marks.first(family.shows),
                             [&](std::string_view mark) { return env.has(std::string(mark).c_str()); });
}

std::vector<const Family*> families_in(const GetEnv& get_env) {
  const Environment env(get_env);
  std::vector<const Family*> found;
  for (const Family& family : kFamilies)
    if (is_present(family, env)) found.push_back(&family);
  return found;
}

// Whether srun has set the variables of PMI or PMIx, by a plug-in that names the step in them. Without a
// plug-in it hands on those of the process that called it, such as a rank of MPICH.
bool is_of_step(const Family& family, const Environment& env) {
  const auto step = read_slurm_step(env);
  if (!step.is_ok() || !step.value()) return false;
  const std::string& id = step.value()->id;
  return family.name == "pmi" ? env.text("PMI_JOBID") == id
                              : env.text("PMIX_NAMESPACE") == "slurm.pmix." + id;
}

// Whether this program starts ranks of exactly one launcher, and this family is one that it sets.
bool starts_ranks_of(std::string_view program, const Family& family, const Environment& env) {
  if (contains(family.programs, program)) return true;
  const bool is_pmix = family.name == "pmix";
  if (!is_pmix && family.name != "pmi") return false;
  if (contains(kSlurmPrograms, program)) return is_of_step(family, env);
  return contains(kFluxPrograms, program) || (is_pmix && contains(kOpenMpiPrograms, program));
}

bool starts_ranks(std::string_view program) {
  return std::ranges::any_of(kFamilies,
                             [&](const Family& family) { return contains(family.programs, program); });
}

// mpirun, mpiexec.hydra, …: a launcher of MPI, but not which one.
bool is_some_launcher(std::string_view program) {
  return starts_ranks(program) || program.starts_with("mpirun") || program.starts_with("mpiexec");
}

bool has_same_marks(const Family& family, const Environment& env, const Process& process) {
  return std::ranges::all_of(family.marks, [&](std::string_view mark) {
    const auto found = process.variables->find(mark);
    return env.text(std::string(mark).c_str()) ==
           (found == process.variables->end() ? std::string() : found->second);
  });
}

// The first process upwards that did not have these variables: 0 is this process when its program began, 1
// its parent, … Empty: none can be read that did not have them.
std::optional<size_t> beginning_of(const Family& family, const GetEnv& get_env, const Ancestry& ancestry) {
  const Environment env(get_env);
  for (size_t i = 0; i < ancestry.size(); ++i) {
    if (i > 0 && starts_ranks_of(ancestry[i].program, family, env)) return i;
    if (!ancestry[i].variables) return std::nullopt;
    if (!has_same_marks(family, env, ancestry[i])) return i;
  }
  return std::nullopt;
}

bool is_started(const Family& family, const GetEnv& get_env, const Ancestry& ancestry) {
  if (family.name == "torchrun") return true;
  const Environment env(get_env);
  if (family.size != nullptr) {
    const Result<Rank> size = env.number(family.size);
    if (size.is_ok() && size.value() > 1) return true;
  }
  const auto beginning = beginning_of(family, get_env, ancestry);
  return beginning && *beginning > 0 && is_some_launcher(ancestry[*beginning].program);
}

}  // namespace

Layers separate_launchers(const GetEnv& get_env, const Ancestry& ancestry) {
  const std::vector<const Family*> present = families_in(get_env);
  std::optional<size_t> nearest;
  for (const Family* family : present) {
    const auto beginning = beginning_of(*family, get_env, ancestry);
    if (beginning && is_started(*family, get_env, ancestry))
      nearest = std::min(nearest.value_or(*beginning), *beginning);
  }
  if (!nearest) return {};
  const Environment env(get_env);
  // Far from a launcher its daemon hands on what it was given, so several families begin with one process.
  const std::string& starter = ancestry[*nearest].program;
  const auto begins_there = [&](const Family* family) {
    return beginning_of(*family, get_env, ancestry) == nearest;
  };
  const bool is_known = *nearest > 0 && std::ranges::any_of(present, [&](const Family* family) {
    return begins_there(family) && starts_ranks_of(starter, *family, env);
  });
  Layers layers;
  for (const Family* family : present) {
    const bool is_inner = begins_there(family) && (!is_known || starts_ranks_of(starter, *family, env));
    (is_inner ? layers.inner : layers.outer).push_back(family->name);
  }
  return layers;
}

bool is_started_by(std::string_view family, const GetEnv& get_env, const Ancestry& ancestry) {
  const Family* found = find_family(family);
  return found != nullptr && is_present(*found, Environment(get_env)) &&
         is_started(*found, get_env, ancestry);
}

const Process* starter_of(std::string_view family, const GetEnv& get_env, const Ancestry& ancestry) {
  const Family* found = find_family(family);
  if (found == nullptr) return nullptr;
  const auto beginning = beginning_of(*found, get_env, ancestry);
  if (!beginning || *beginning == 0) return nullptr;
  const Process& starter = ancestry[*beginning];
  return family == "torchrun" || is_some_launcher(starter.program) ? &starter : nullptr;
}

std::string_view family_of(std::string_view launcher) {
  if (launcher == "mpich" || launcher == "mvapich2" || launcher == "pals") return "pmi";
  const Family* found = find_family(launcher);
  return found == nullptr ? std::string_view() : found->name;
}

GetEnv without_families(const GetEnv& get_env, const std::vector<std::string_view>& families) {
  return [get_env, families](const char* name) -> const char* {
    for (const std::string_view one : families)
      for (const std::string_view prefix : find_family(one)->prefixes)
        if (std::string_view(name).starts_with(prefix)) return nullptr;
    return get_env(name);
  };
}

}  // namespace rueda::store
