#include "rueda/base/setting_names.h"

#include <iterator>

#include "rueda/base/config_table.h"
#include "rueda/base/nearest.h"

namespace rueda {
namespace {

// Variables that are not settings: places of ranks, paths, and variables that one part of rueda
// reads by itself.
constexpr const char* kOtherVariables[] = {"RUEDA_RANK",
                                           "RUEDA_SIZE",
                                           "RUEDA_LOCAL_RANK",
                                           "RUEDA_LOCAL_SIZE",
                                           "RUEDA_CROSS_RANK",
                                           "RUEDA_CROSS_SIZE",
                                           "RUEDA_STORE",
                                           "RUEDA_STORE_SERVED",
                                           "RUEDA_SECRET_FILE",
                                           "RUEDA_JOB",
                                           "RUEDA_HOSTNAME",
                                           "RUEDA_LIBRARY",
                                           "RUEDA_BIN",
                                           "RUEDA_PYTHON",
                                           "RUEDA_STAGE_DIR",
                                           "RUEDA_STOP_FILE",
                                           "RUEDA_LOG_DIR",
                                           "RUEDA_RESTART_COUNT",
                                           "RUEDA_NEWS_FILE",
                                           "RUEDA_JOINER",
                                           "RUEDA_ELASTIC_UID",
                                           "RUEDA_ELASTIC_VIEW",
                                           "RUEDA_ELASTIC_TIMEOUT",
                                           "RUEDA_ELASTIC_BOARD",
                                           "RUEDA_BENCH_JOB",
                                           "RUEDA_BUILD_DIR",
                                           "RUEDA_TENSORFLOW_ASYNC",
                                           "RUEDA_ELASTIC",
                                           "RUEDA_ELASTIC_MEMBERS",
                                           "RUEDA_SPARK_GPUS",
                                           "RUEDA_SPARK_START_TIMEOUT",
                                           "RUEDA_SPARK_USE_LOCAL_RANK_GPU_INDEX",
                                           "HOROVOD_RANK",
                                           "HOROVOD_SIZE",
                                           "HOROVOD_LOCAL_RANK",
                                           "HOROVOD_LOCAL_SIZE",
                                           "HOROVOD_CROSS_RANK",
                                           "HOROVOD_CROSS_SIZE",
                                           "HOROVOD_HOSTNAME",
                                           "HOROVOD_ELASTIC",
                                           "HOROVOD_SPARK_START_TIMEOUT",
                                           "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
                                           "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                           "HOROVOD_GLOO_RENDEZVOUS_PORT"};
// Settings of Horovod, and of earlier versions, that have no effect here.
constexpr const char* kWithoutEffect[] = {"RUEDA_HEARTBEAT_SECONDS",
                                          "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
                                          "HOROVOD_AUTOTUNE",
                                          "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                          "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
                                          "HOROVOD_AUTOTUNE_LOG",
                                          "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
                                          "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
                                          "HOROVOD_BATCH_D2D_MEMCOPIES",
                                          "HOROVOD_CACHE_CAPACITY",
                                          "HOROVOD_CCL_CACHE",
                                          "HOROVOD_CONTROLLER",
                                          "HOROVOD_ENABLE_ASYNC_COMPLETION",
                                          "HOROVOD_ENABLE_XLA_OPS",
                                          "HOROVOD_GPU_OPERATIONS",
                                          "HOROVOD_HIERARCHICAL_ALLGATHER",
                                          "HOROVOD_MPI_THREADS_DISABLE",
                                          "HOROVOD_NUM_NCCL_STREAMS",
                                          "HOROVOD_TORUS_ALLREDUCE"};

}  // namespace

std::set<std::string, std::less<>> known_settings() {
  std::set<std::string, std::less<>> names(std::begin(kOtherVariables), std::end(kOtherVariables));
  names.insert(std::begin(kWithoutEffect), std::end(kWithoutEffect));
  for (const ConfigEntry& entry : config_table()) {
    names.emplace(entry.env);
    if (!entry.alias.empty()) names.emplace(entry.alias);
  }
  return names;
}

std::string unknown_setting(const std::string& name, const std::string& nearest) {
  const std::string hint = nearest.empty() ? "unset it" : "did you mean " + nearest + "?";
  return name + " is not a setting of this version and has no effect; " + hint;
}

std::string nearest_setting(std::string_view unknown) {
  const auto known = known_settings();
  const size_t letters = unknown.substr(unknown.find('_') + 1).size();  // the prefix is right
  return nearest_within(unknown, std::vector(known.begin(), known.end()), letters / kLettersPerEdit);
}

std::vector<std::string> misspelt_settings(std::span<const std::pair<std::string, std::string>> environment) {
  std::vector<std::string> sentences;
  const auto known = known_settings();
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("RUEDA_") || value.empty() || known.contains(name)) continue;
    const std::string nearest = nearest_setting(name);
    if (!nearest.empty()) sentences.push_back(unknown_setting(name, nearest));
  }
  return sentences;
}

}  // namespace rueda
