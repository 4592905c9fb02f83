// The innermost launcher wins, so a launcher that another one can start comes first. For example, mpirun
// inside salloc leaves the Slurm variables of its daemon in the environment of every rank.
#include <unistd.h>

#include <array>

#include "rueda/store/detect_one.h"
#include "rueda/store/environment.h"
#include "rueda/store/job_id.h"
#include "rueda/store/members.h"
#include "rueda/store/slurm.h"
#include "rueda/store/store_url.h"

namespace rueda::store {
namespace {

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

Status contradiction(const std::string& why) {
  return {Code::kInvalidArgument, why + "; correct the variables, or unset them to run as a single process"};
}

std::string assigned(const Environment& env, const char* name) {
  return std::string(name) + "=" + env.text(name);
}

bool has_either(const Environment& env, const Names& names) {
  return env.has(names.rank) || env.has(names.size);
}

// Both local numbers, or -1 for both. If one were missing, it would be taken from another source,
// which may disagree.
Status read_local(const Environment& env, const Names& names, World& world) {
  world.local_rank = world.local_size = -1;
  if (!env.has(names.local_rank) || !env.has(names.local_size)) return Status::ok();
  const Result<Rank> rank = env.number(names.local_rank), size = env.number(names.local_size);
  if (!rank.is_ok()) return rank.status();
  if (!size.is_ok()) return size.status();
  if (rank.value() >= size.value() || size.value() > world.size)
    return contradiction(assigned(env, names.local_rank) + " and " + assigned(env, names.local_size) +
                         " do not fit a world of " + std::to_string(world.size));
  world.local_rank = rank.value();
  world.local_size = size.value();
  return Status::ok();
}

Status read_numbers(const Environment& env, const Names& names, World& world) {
  for (const auto& [missing, present] :
       {std::pair(names.rank, names.size), std::pair(names.size, names.rank)})
    if (!env.has(missing))
      return contradiction(assigned(env, present) + " is set but " + std::string(missing) + " is not");
  const Result<Rank> rank = env.number(names.rank), size = env.number(names.size);
  if (!rank.is_ok()) return rank.status();
  if (!size.is_ok()) return size.status();
  if (rank.value() >= size.value())
    return contradiction(assigned(env, names.rank) + " is not below " + assigned(env, names.size));
  world.rank = rank.value();
  world.size = size.value();
  world.reason = std::string(names.rank) + " and " + names.size + " are set";
  return read_local(env, names, world);
}

void take_step(const SlurmStep& step, World& world) {
  world.local_rank = step.local_rank;
  world.local_size = step.local_size;
  world.launcher = "slurm";
  world.job = make_job_id("slurm-" + step.id + (step.restarts.empty() ? "" : "-restart" + step.restarts));
  world.seed_host = step.first_host;
  world.seed_fallback = step.srun_host;  // a node name is not always a host name
}

constexpr const char* kNameStore =
    "set RUEDA_STORE to the tcp://HOST:PORT of rank 0 or to file:///DIRECTORY that all ranks share";

// A pod of an Indexed Job is named after the Job and its index: train-2 has its rank 0 in train-0.
std::string name_first_pod(const Environment& env, const World& world) {
  const std::string tail = "-" + env.text("JOB_COMPLETION_INDEX");
  if (!world.host.ends_with(tail)) return kNameStore;
  return "set RUEDA_STORE to tcp://" + world.host.substr(0, world.host.size() - tail.size()) +
         "-0.SERVICE:29400, where SERVICE is the headless Service that the manifest names as subdomain";
}

// kPmi and kPmix are decided already; this decides the rest.
Result<World> settle(const Environment& env, World world) {
  // Others may come to an elastic job, on other hosts too. Whether a view lies on one host is asked for each
  // view.
  const bool may_grow = env.has("RUEDA_STORE") && env.is_in_elastic_job();
  if (world.size == 1) {
    world.local_rank = 0;
    world.local_size = 1;
    world.method = World::Method::kNone;
    if (!may_grow) return world;
  }
  const bool is_one_host = world.size > 0 && world.local_size == world.size;
  if (is_one_host && !may_grow) world.seed_host = "127.0.0.1";
  if (env.has("RUEDA_STORE")) {
    world.url = env.text("RUEDA_STORE");
    if (const auto url = parse_store_url(world.url); !url.is_ok()) return url.status();
    world.method = World::Method::kUrl;
    world.is_store_served = env.text("RUEDA_STORE_SERVED") == "1";
    return world;
  }
  if (world.method != World::Method::kNone) return world;
  if (world.seed_host.empty() || world.launcher == "rueda")
    return Status(Code::kInvalidArgument,
                  world.reason + ", but nothing says where the ranks meet; " +
                      (world.launcher == "kubernetes" ? name_first_pod(env, world) : kNameStore));
  world.method = World::Method::kSeed;
  return world;
}

Result<World> from_rueda(const Environment& env, World world) {
  const bool is_indexed =
      env.has("JOB_COMPLETION_INDEX") && !env.has("RUEDA_RANK");  // Kubernetes Indexed Job
  const char* rank = is_indexed ? "JOB_COMPLETION_INDEX" : "RUEDA_RANK";
  const Names names{rank, "RUEDA_SIZE", "RUEDA_LOCAL_RANK", "RUEDA_LOCAL_SIZE"};
  if (Status status = read_numbers(env, names, world); !status.is_ok()) return status;
  world.launcher = is_indexed ? "kubernetes" : "rueda";
  world.job = make_job_id("rueda-" + env.text("RUEDA_STORE"));
  return settle(env, std::move(world));
}

// A process that joins an elastic job of which no launcher knows. It has no rank before it is admitted.
Result<World> from_joiner(const Environment& env, World world) {
  world.rank = 0;
  world.size = 1;
  world.launcher = "rueda";
  world.reason = "RUEDA_ELASTIC=members is set, and RUEDA_RANK is not";
  world.job = make_job_id("rueda-" + env.text("RUEDA_STORE"));
  return settle(env, std::move(world));
}

Result<World> from_horovodrun(const Environment& env, World world) {
  const Names names{"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"};
  if (Status status = read_numbers(env, names, world); !status.is_ok()) return status;
  const std::string address = env.text("HOROVOD_GLOO_RENDEZVOUS_ADDR");
  world.launcher = "horovodrun";
  world.seed_host = address;
  world.seed_variable = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
  world.job = make_job_id("horovodrun-" + address + "-" + env.text("HOROVOD_GLOO_RENDEZVOUS_PORT"));
  return settle(env, std::move(world));
}

// The port in MASTER_PORT is never bound, because torchrun's own store may listen there. It
// only distinguishes jobs.
Result<World> from_torch_names(const Environment& env, World world, const char* launcher) {
  const Names names{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  if (Status status = read_numbers(env, names, world); !status.is_ok()) return status;
  if (env.has("MASTER_PORT") && !parse_port(env.text("MASTER_PORT")))
    return contradiction(assigned(env, "MASTER_PORT") + " is not a port, from 1 to 65535");
  world.launcher = launcher;
  world.seed_host = env.text("MASTER_ADDR");
  world.seed_variable = "MASTER_ADDR";
  world.job = make_job_id(std::string(launcher) + "-" + env.text("TORCHELASTIC_RUN_ID") + "-" +
                          env.text("TORCHELASTIC_RESTART_COUNT") + "-" + env.text("MASTER_ADDR") + "-" +
                          env.text("MASTER_PORT"));
  return settle(env, std::move(world));
}

// "3735158784.0;tcp://10.0.0.1,192.168.0.1:33333": the host where mpirun runs, usually also that of rank 0.
std::string host_of_mpirun(const Environment& env) {
  const std::string uri = env.text("OMPI_MCA_orte_hnp_uri");
  const size_t begin = uri.find("tcp://");
  if (begin == std::string::npos) return {};
  const size_t end = uri.find_first_of(",:", begin + 6);
  return uri.substr(begin + 6, end == std::string::npos ? end : end - begin - 6);
}

Result<World> from_open_mpi(const Environment& env, World world) {
  const Names names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                    "OMPI_COMM_WORLD_LOCAL_SIZE"};
  if (Status status = read_numbers(env, names, world); !status.is_ok()) return status;
  world.launcher = "openmpi";
  world.seed_host = host_of_mpirun(env);
  world.job = make_job_id("openmpi-" + (env.has("PMIX_NAMESPACE") ? env.text("PMIX_NAMESPACE")
                                                                  : env.text("OMPI_MCA_ess_base_jobid")));
  if (env.has("PMIX_NAMESPACE")) world.method = World::Method::kPmix;
  return settle(env, std::move(world));
}

bool is_pmi(const Environment& env) {
  return has_either(env, {"PMI_RANK", "PMI_SIZE", "", ""}) || (env.has("PMI_PORT") && env.has("PMI_ID"));
}

const char* pmi_launcher(const Environment& env) {
  if (env.has("PALS_RANKID")) return "pals";
  if (env.has("FLUX_TASK_RANK")) return "flux";
  return env.has("MV2_COMM_WORLD_RANK") ? "mvapich2" : "mpich";
}

Names pmi_names(const Environment& env) {
  if (env.has("MPI_LOCALRANKID")) return {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  if (env.has("PMI_LOCAL_RANK")) return {"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"};
  return {"PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"};
}

Result<World> from_pmi(const Environment& env, World world) {
  world.launcher = pmi_launcher(env);
  if (env.has("PMI_FD") || env.has("PMI_PORT")) world.method = World::Method::kPmi;
  // With mpiexec -pmi-port, rank and size come over the connection.
  if (!has_either(env, {"PMI_RANK", "PMI_SIZE", "", ""})) {
    world.rank = world.size = -1;
    world.local_rank = world.local_size = -1;
    world.reason = "PMI_PORT and PMI_ID are set";
    return settle(env, std::move(world));
  }
  if (Status status = read_numbers(env, pmi_names(env), world); !status.is_ok()) return status;
  world.job = make_job_id(std::string(world.launcher) + "-" + env.text("PMI_JOBID"));
  const auto step = read_slurm_step(env);
  // Only then is srun itself the launcher, and its local numbers are those of this rank.
  if (step.is_ok() && step.value() && env.text("PMI_JOBID") == step.value()->id) {
    take_step(*step.value(), world);
    world.reason += " by srun --mpi=pmi2";
  }
  return settle(env, std::move(world));
}

Result<World> from_plain_names(const Environment& env, World world, const Names& names) {
  if (Status status = read_numbers(env, names, world); !status.is_ok()) return status;
  return settle(env, std::move(world));
}

Result<World> from_mvapich2(const Environment& env, World world) {
  world.launcher = "mvapich2";
  world.job = make_job_id("mvapich2-" + env.text("SLURM_JOB_ID") + env.text("LSB_JOBID"));
  return from_plain_names(env, std::move(world),
                          {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                           "MV2_COMM_WORLD_LOCAL_SIZE"});
}

Result<World> from_flux(const Environment& env, World world) {
  world.launcher = "flux";
  world.job = make_job_id("flux-" + env.text("FLUX_JOB_ID"));
  return from_plain_names(env, std::move(world), {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "", ""});
}

Result<World> from_jsm(const Environment& env, World world) {
  world.launcher = "jsm";
  world.job = make_job_id("jsm-" + env.text("LSB_JOBID") + "-" + env.text("PMIX_NAMESPACE"));
  if (env.has("PMIX_NAMESPACE")) world.method = World::Method::kPmix;
  return from_plain_names(
      env, std::move(world),
      {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"});
}

Result<World> from_pmix(const Environment& env, World world) {
  const Result<Rank> rank = env.number("PMIX_RANK");
  if (!rank.is_ok()) return rank.status();
  if (!env.has("PMIX_NAMESPACE")) return contradiction("PMIX_RANK is set but PMIX_NAMESPACE is not");
  world.rank = rank.value();
  world.size = world.local_rank = world.local_size = -1;
  world.launcher = "pmix";
  world.method = World::Method::kPmix;
  world.reason = "PMIX_RANK and PMIX_NAMESPACE are set";
  world.job = make_job_id("pmix-" + env.text("PMIX_NAMESPACE"));
  const auto step = read_slurm_step(env);
  if (step.is_ok() && step.value() && env.text("PMIX_NAMESPACE") == "slurm.pmix." + step.value()->id) {
    take_step(*step.value(), world);
    world.size = step.value()->size;
    world.reason += " by srun --mpi=pmix";
    if (world.rank >= world.size || world.rank != step.value()->rank)
      return contradiction(assigned(env, "PMIX_RANK") + " does not fit " + assigned(env, "SLURM_PROCID") +
                           " of " + assigned(env, "SLURM_STEP_NUM_TASKS"));
  }
  return settle(env, std::move(world));
}

std::string outside_of_step(const Environment& env, const std::string& tasks) {
  return "inside a Slurm allocation for " + env.text(tasks.c_str()) +
         " tasks but not started by srun, so this is a single-process job; try `srun python train.py`";
}

Result<World> from_slurm(const Environment& env, World world, const SlurmStep& step) {
  world.reason = "SLURM_STEP_ID and SLURM_STEP_NUM_TASKS are set";
  if (step.size > 1 && env.has("SLURM_PTY_PORT")) {
    // Under --pty, one task has the terminal, and the others have ended or wait forever.
    world.launcher = "single";
    world.reason = "srun --pty is a terminal, not a job";
    world.warning = outside_of_step(env, "SLURM_STEP_NUM_TASKS");
    return world;
  }
  if (step.rank >= step.size)
    return contradiction(assigned(env, "SLURM_PROCID") + " is not below " +
                         assigned(env, "SLURM_STEP_NUM_TASKS"));
  world.rank = step.rank;
  world.size = step.size;
  take_step(step, world);
  if (env.has("RANK") && env.has("WORLD_SIZE") && env.text("WORLD_SIZE") != std::to_string(step.size))
    world.warning = assigned(env, "RANK") + " and " + assigned(env, "WORLD_SIZE") +
                    " differ from the Slurm step, so they were ignored; set RUEDA_RANK and RUEDA_SIZE to use "
                    "them instead";
  return settle(env, std::move(world));
}

// What Kubeflow Trainer's torch runtime gives to torchrun. Where torchrun would start one process per pod,
// the script may be started without it.
Result<World> from_pet(const Environment& env, World world) {
  const std::string per_node = env.text("PET_NPROC_PER_NODE");
  if (env.text("PET_NNODES") != "1" && !per_node.empty() && per_node != "1")
    return contradiction(assigned(env, "PET_NNODES") + " and " + assigned(env, "PET_NPROC_PER_NODE") +
                         " are set for torchrun, which did not start this process; start the script with "
                         "torchrun, or give each pod one process (numProcPerNode: 1)");
  if (Status status = read_numbers(env, {"PET_NODE_RANK", "PET_NNODES", "", ""}, world); !status.is_ok())
    return status;
  world.launcher = "kubeflow";
  world.seed_host = env.text("PET_MASTER_ADDR");
  world.seed_variable = "PET_MASTER_ADDR";
  world.job = make_job_id("kubeflow-" + world.seed_host + "-" + env.text("PET_MASTER_PORT"));
  return settle(env, std::move(world));
}

// Kubeflow Trainer's JAX runtime, and people who start jax.distributed by hand. JAX's own service listens on
// the port in the address, so that port only distinguishes jobs.
Result<World> from_jax_names(const Environment& env, World world) {
  if (Status status = read_numbers(env, {"JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "", ""}, world);
      !status.is_ok())
    return status;
  const std::string coordinator = env.text("JAX_COORDINATOR_ADDRESS");
  world.launcher = "jax";
  world.seed_host = coordinator.substr(0, coordinator.rfind(':'));
  world.seed_variable = "JAX_COORDINATOR_ADDRESS";
  world.job = make_job_id("jax-" + coordinator);
  return settle(env, std::move(world));
}

Result<World> single(const Environment& env, World world) {
  world.launcher = "single";
  world.reason = "no variables of a launcher are set";
  if (env.has("JOB_COMPLETION_INDEX") && env.has("RUEDA_STORE"))
    return contradiction(assigned(env, "JOB_COMPLETION_INDEX") + " and " + assigned(env, "RUEDA_STORE") +
                         " are set but RUEDA_SIZE is not; set RUEDA_SIZE to the Job's number of completions");
  // Array jobs, whose pods have nothing to do with one another, are Indexed Jobs too.
  if (env.has("JOB_COMPLETION_INDEX"))
    world.warning =
        "in pod " + env.text("JOB_COMPLETION_INDEX") +
        " of a Kubernetes Indexed Job, but RUEDA_SIZE is not set, so this is a single-process job; "
        "if the pods are the ranks of one job, set RUEDA_SIZE and RUEDA_STORE";
  const std::string tasks = env.text("SLURM_NTASKS");
  if (env.has("SLURM_JOB_ID") && !tasks.empty() && tasks != "1")
    world.warning = outside_of_step(env, "SLURM_NTASKS");
  return world;
}

std::string host_name(const Environment& env) {
  // A launcher calls the machine on which it runs localhost; elsewhere nobody would know which one that is.
  for (const char* name : {"RUEDA_HOSTNAME", "HOROVOD_HOSTNAME"})
    if (env.has(name) && env.text(name) != "localhost") return env.text(name);
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

Result<World> detect(const Environment& env, World world) {
  if (has_either(env, {"RUEDA_RANK", "RUEDA_SIZE", "", ""})) return from_rueda(env, std::move(world));
  if (env.text("RUEDA_ELASTIC") == "members" && env.has("RUEDA_STORE"))
    return from_joiner(env, std::move(world));
  if (has_either(env, {"HOROVOD_RANK", "HOROVOD_SIZE", "", ""}))
    return from_horovodrun(env, std::move(world));
  if (env.has("TORCHELASTIC_RUN_ID")) return from_torch_names(env, std::move(world), "torchrun");
  if (has_either(env, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "", ""}))
    return from_open_mpi(env, std::move(world));
  if (is_pmi(env)) return from_pmi(env, std::move(world));
  if (has_either(env, {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "", ""}))
    return from_mvapich2(env, std::move(world));
  if (env.has("PALS_RANKID")) return contradiction("PALS_RANKID is set but PMI_RANK and PMI_SIZE are not");
  if (has_either(env, {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "", ""})) return from_flux(env, std::move(world));
  if (has_either(env, {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "", ""}))
    return from_jsm(env, std::move(world));
  if (env.has("PMIX_RANK")) return from_pmix(env, std::move(world));
  const auto step = read_slurm_step(env);
  if (!step.is_ok()) return step.status();
  if (step.value()) return from_slurm(env, std::move(world), *step.value());
  if (has_either(env, {"RANK", "WORLD_SIZE", "", ""}))
    return from_torch_names(env, std::move(world), "environment");
  if (env.has("PET_NNODES") && env.has("PET_NODE_RANK")) return from_pet(env, std::move(world));
  if (env.has("JAX_COORDINATOR_ADDRESS") && env.has("JAX_PROCESS_ID"))
    return from_jax_names(env, std::move(world));
  return single(env, std::move(world));
}

}  // namespace

bool is_elastic_by_members(const GetEnv& get_env) {
  const Environment env(get_env);
  return env.text("RUEDA_ELASTIC") == "members" && env.text("RUEDA_STORE_SERVED") != "1";
}

std::string host_name(const GetEnv& get_env) { return host_name(Environment(get_env)); }

Result<World> detect_one(const GetEnv& get_env) {
  const Environment env(get_env);
  World world;
  world.host = host_name(env);
  world.secret_file = env.text("RUEDA_SECRET_FILE");
  world.is_in_pod = env.has("KUBERNETES_SERVICE_HOST");
  Result<World> found = detect(env, std::move(world));
  if (!found.is_ok()) return found;
  if (env.has("RUEDA_JOB")) found.value().job = make_job_id(env.text("RUEDA_JOB"));
  if (found.value().job.empty()) found.value().job = "single";
  return found;
}

}  // namespace rueda::store
