#include "rueda/base/config_table.h"
#include "rueda/base/config_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace rueda::base_config_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Environment = std::map<std::string, std::string>;

std::function<const char*(const char*)> env(const Environment& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Result<Config> parse(const Environment& variables) { return parse_config(env(variables)); }
std::vector<std::string> ignored(const Environment& variables) { return ignored_settings(env(variables)); }

TEST(BaseConfig, an_empty_environment_gives_the_defaults) {
  const Config defaults, parsed = parse({}).value();
  for (const ConfigEntry& entry : config_table()) EXPECT_EQ(entry.print(parsed), entry.print(defaults));
}

TEST(BaseConfig, every_entry_prints_what_it_parses) {
  const Config defaults;
  for (const ConfigEntry& entry : config_table()) {
    Config config;
    std::string text = entry.print(defaults);
    if (entry.type == "boolean") text = text == "1" ? "0" : "1";
    if (entry.type == "integer" || entry.type == "number")
      text = entry.name == "tune_percent" ? "50" : "5000";
    if (entry.type == "text") {
      const std::map<std::string_view, std::string> choices = {{"log_level", "debug"},
                                                               {"transports", "tcp"},
                                                               {"determinism", "bitwise"},
                                                               {"gpu_operations", "staged"},
                                                               {"cpu_operations", "mpi"},
                                                               {"thread_affinity", "0,8"},
                                                               {"flight_record_signal", "usr2"},
                                                               {"cuda_ipc", "off"},
                                                               {"metrics_address", "0.0.0.0"},
                                                               {"tune", "off"},
                                                               {"wire", "int8"}};
      const auto choice = choices.find(entry.name);
      text = choice == choices.end() ? "x" : choice->second;
    }
    ASSERT_TRUE(entry.parse(config, text).is_ok()) << entry.name;
    EXPECT_EQ(entry.print(config), text) << entry.name;
    EXPECT_NE(entry.print(defaults), text) << entry.name << " did not change";
  }
}

TEST(BaseConfig, names_are_unique_and_every_entry_explains_itself) {
  std::set<std::string_view> seen;
  for (const ConfigEntry& entry : config_table()) {
    EXPECT_TRUE(seen.insert(entry.name).second) << entry.name;
    EXPECT_TRUE(seen.insert(entry.env).second) << entry.env;
    if (!entry.alias.empty()) {
      EXPECT_TRUE(seen.insert(entry.alias).second) << entry.alias;
    }
    EXPECT_TRUE(entry.env.starts_with("RUEDA_")) << entry.env;
    EXPECT_TRUE(entry.sentence.ends_with(".")) << entry.name;
    EXPECT_FALSE(entry.range.empty()) << entry.name;
  }
}

TEST(BaseConfig, the_rueda_name_wins_over_the_horovod_name) {
  EXPECT_EQ(parse({{"HOROVOD_FUSION_THRESHOLD", "1024"}}).value().fusion_bytes, 1024);
  EXPECT_EQ(
      parse({{"HOROVOD_FUSION_THRESHOLD", "1024"}, {"RUEDA_FUSION_THRESHOLD", "0"}}).value().fusion_bytes, 0);
}

TEST(BaseConfig, an_empty_variable_counts_as_unset) {
  const Config config = parse({{"RUEDA_CYCLE_TIME", ""}, {"HOROVOD_CYCLE_TIME", " 2.5 "}}).value();
  EXPECT_DOUBLE_EQ(config.cycle_time_ms, 2.5);
}

TEST(BaseConfig, a_bad_value_is_refused_with_variable_value_and_range) {
  const std::vector<std::pair<const char*, const char*>> bad = {{"RUEDA_FUSION_THRESHOLD", "64M"},
                                                                {"RUEDA_FUSION_THRESHOLD", "-1"},
                                                                {"RUEDA_FUSION_THRESHOLD", "1e99"},
                                                                {"HOROVOD_CYCLE_TIME", "fast"},
                                                                {"HOROVOD_CYCLE_TIME", "nan"},
                                                                {"HOROVOD_CYCLE_TIME", "inf"},
                                                                {"HOROVOD_LOG_HIDE_TIME", "maybe"},
                                                                {"RUEDA_LOG_HIDE_TIME", "2"},
                                                                {"RUEDA_LOG_LEVEL", "chatty"},
                                                                {"RUEDA_START_TIMEOUT", "0"},
                                                                {"RUEDA_TRANSPORTS", "shm,smoke"},
                                                                {"RUEDA_CHUNK_BYTES", "1e6"},
                                                                {"RUEDA_TIMELINE", "t.pftrace"},
                                                                {"HOROVOD_TIMELINE", "a/t.Perfetto-Trace"},
                                                                {"RUEDA_THREAD_AFFINITY", "x"},
                                                                {"RUEDA_THREAD_AFFINITY", "0,,2"},
                                                                {"RUEDA_THREAD_AFFINITY", "0-3"},
                                                                {"HOROVOD_THREAD_AFFINITY", "0,4096"},
                                                                {"HOROVOD_GLOO_TIMEOUT_SECONDS", "1e300"}};
  for (const auto& [variable, value] : bad) {
    const Result<Config> result = parse({{variable, value}});
    ASSERT_FALSE(result.is_ok()) << variable << "=" << value;
    EXPECT_EQ(result.status().code, Code::kInvalidArgument);
    EXPECT_THAT(result.status().why, AllOf(HasSubstr(variable), HasSubstr(value), HasSubstr("allowed: ")));
  }
}

TEST(BaseConfig, booleans_are_words_or_digits_in_any_letter_case) {
  for (const char* yes : {"1", "true", "Yes", "ON"}) EXPECT_TRUE(parse_boolean(yes).value()) << yes;
  for (const char* no : {"0", "FALSE", "no", "Off"}) EXPECT_FALSE(parse_boolean(no).value()) << no;
  for (const char* bad : {"", "2", "-1", "y", "true false"}) EXPECT_FALSE(parse_boolean(bad).is_ok()) << bad;
}

TEST(BaseConfig, horovod_booleans_also_take_other_integers) {
  EXPECT_TRUE(parse({{"HOROVOD_LOG_HIDE_TIME", "2"}}).value().log_hide_time);
  EXPECT_FALSE(parse({{"HOROVOD_LOG_HIDE_TIME", "-1"}}).value().log_hide_time);
  EXPECT_TRUE(parse({{"HOROVOD_DYNAMIC_PROCESS_SETS", "-1"}}).value().dynamic_process_sets);
  EXPECT_TRUE(parse({{"HOROVOD_STALL_CHECK_DISABLE", "true"}}).value().stall_check_disabled);
}

TEST(BaseConfig, log_levels_are_read_in_any_letter_case) {
  EXPECT_EQ(parse({{"HOROVOD_LOG_LEVEL", "DEBUG"}}).value().log_level, "debug");
}

TEST(BaseConfig, an_unknown_horovod_log_level_means_warning_and_is_reported) {
  const Environment variables = {{"HOROVOD_LOG_LEVEL", "chatty"}};
  EXPECT_EQ(parse(variables).value().log_level, "warning");
  EXPECT_THAT(ignored(variables), ElementsAre(HasSubstr("HOROVOD_LOG_LEVEL=chatty")));
}

TEST(BaseConfig, a_stall_shutdown_below_the_warning_time_is_ignored_and_reported) {
  const Environment variables = {{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "30"}};
  EXPECT_DOUBLE_EQ(parse(variables).value().stall_shutdown_s, 0);
  EXPECT_THAT(ignored(variables), ElementsAre(AllOf(HasSubstr("30 s"), HasSubstr("60 s"))));
  EXPECT_DOUBLE_EQ(parse({{"RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "90"}}).value().stall_shutdown_s, 90);
}

TEST(BaseConfig, a_sentence_about_two_settings_names_the_variables_that_were_set) {
  const auto told = [](const Environment& variables) { return ignored(variables).at(0); };
  EXPECT_THAT(told({{"RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "30"}, {"RUEDA_STALL_CHECK_TIME_SECONDS", "40"}}),
              testing::StartsWith(
                  "RUEDA_STALL_SHUTDOWN_TIME_SECONDS is less than RUEDA_STALL_CHECK_TIME_SECONDS, will "
                  "not shutdown."));
  EXPECT_THAT(
      told({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "30"}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "40"}}),
      testing::StartsWith(
          "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is less than HOROVOD_STALL_CHECK_TIME_SECONDS, "));
  EXPECT_THAT(told({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "30"}}),
              testing::StartsWith(
                  "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is less than RUEDA_STALL_CHECK_TIME_SECONDS, "))
      << "the other one is at its default";
}

TEST(BaseConfig, an_elastic_job_waits_less_long_for_a_silent_rank_unless_a_setting_says_otherwise) {
  EXPECT_DOUBLE_EQ(parse({}).value().peer_timeout_s, 30);
  EXPECT_DOUBLE_EQ(parse({{"RUEDA_ELASTIC", "off"}}).value().peer_timeout_s, 30);
  EXPECT_DOUBLE_EQ(parse({{"RUEDA_ELASTIC", "members"}}).value().peer_timeout_s, 10);
  EXPECT_DOUBLE_EQ(parse({{"RUEDA_ELASTIC_UID", "a:1#2"}}).value().peer_timeout_s, 10);
  for (const char* const name : {"RUEDA_PEER_TIMEOUT_SECONDS", "HOROVOD_GLOO_TIMEOUT_SECONDS"})
    EXPECT_DOUBLE_EQ(parse({{"RUEDA_ELASTIC", "members"}, {name, "30"}}).value().peer_timeout_s, 30);
}

TEST(BaseConfig, a_hang_ends_after_half_an_hour_unless_a_setting_says_otherwise) {
  EXPECT_DOUBLE_EQ(parse({}).value().stall_shutdown_s, 1800);
  EXPECT_DOUBLE_EQ(parse({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"}}).value().stall_shutdown_s, 0);
  EXPECT_DOUBLE_EQ(parse({{"RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "0"}}).value().stall_shutdown_s, 0);
}

TEST(BaseConfig, ranks_that_may_be_late_for_long_are_warned_of_before_the_job_ends) {
  const Environment late = {{"RUEDA_STALL_CHECK_TIME_SECONDS", "3600"}};
  EXPECT_DOUBLE_EQ(parse(late).value().stall_shutdown_s, 7200);
  EXPECT_THAT(ignored(late), IsEmpty());
}

TEST(BaseConfig, one_setting_holds_for_all_silence_and_the_earlier_one_is_reported) {
  EXPECT_THAT(ignored({{"RUEDA_HEARTBEAT_SECONDS", "5"}}),
              ElementsAre(HasSubstr("RUEDA_HEARTBEAT_SECONDS=5 is ignored: RUEDA_PEER_TIMEOUT_SECONDS")));
}

TEST(BaseConfig, settings_of_other_controllers_are_reported_once_each) {
  EXPECT_THAT(ignored({{"HOROVOD_CONTROLLER", "Gloo"}, {"HOROVOD_CPU_OPERATIONS", "gloo"}}), IsEmpty());
  EXPECT_THAT(ignored({{"HOROVOD_CPU_OPERATIONS", "MPI"}}), IsEmpty());
  EXPECT_THAT(ignored({{"HOROVOD_CPU_OPERATIONS", "ccl"}}), SizeIs(1));
  EXPECT_THAT(ignored({{"HOROVOD_CONTROLLER", "mpi"}}), ElementsAre(HasSubstr("HOROVOD_CONTROLLER=mpi")));
  EXPECT_THAT(ignored({{"HOROVOD_CCL_CACHE", "1"}, {"HOROVOD_MPI_THREADS_DISABLE", "0"}}), SizeIs(2));
  EXPECT_THAT(ignored({{"HOROVOD_BATCH_D2D_MEMCOPIES", "1"}, {"HOROVOD_ENABLE_ASYNC_COMPLETION", "1"}}),
              IsEmpty());
  EXPECT_THAT(ignored({{"HOROVOD_BATCH_D2D_MEMCOPIES", "0"}, {"HOROVOD_ENABLE_ASYNC_COMPLETION", "0"}}),
              SizeIs(2));
  EXPECT_THAT(ignored({{"HOROVOD_HIERARCHICAL_ALLGATHER", "0"}}), IsEmpty());
  EXPECT_THAT(ignored({{"HOROVOD_HIERARCHICAL_ALLGATHER", "1"}}), ElementsAre(HasSubstr("RUEDA_ALGORITHM")));
}

TEST(BaseConfig, mpi_runs_collectives_only_where_it_is_named) {
  EXPECT_EQ(parse({}).value().cpu_operations, "native");
  EXPECT_EQ(parse({{"HOROVOD_CPU_OPERATIONS", "MPI"}}).value().cpu_operations, "mpi");
  EXPECT_EQ(parse({{"HOROVOD_CPU_OPERATIONS", "gloo"}}).value().cpu_operations, "native");
  EXPECT_EQ(parse({{"HOROVOD_CPU_OPERATIONS", "ccl"}}).value().cpu_operations, "native");
  EXPECT_EQ(parse({{"RUEDA_CPU_OPERATIONS", "mpi"}}).value().cpu_operations, "mpi");
  EXPECT_THAT(parse({{"RUEDA_CPU_OPERATIONS", "gloo"}}).status().why, HasSubstr("allowed: native|mpi"));
}

TEST(BaseConfig, horovods_choice_for_gpu_allreduces_counts_if_no_other_is_made) {
  EXPECT_EQ(parse({{"HOROVOD_GPU_ALLREDUCE", "NCCL"}}).value().gpu_operations, "nccl");
  EXPECT_EQ(parse({{"HOROVOD_GPU_ALLREDUCE", "mpi"}}).value().gpu_operations, "mpi");
  EXPECT_EQ(parse({{"HOROVOD_GPU_ALLREDUCE", "DDL"}}).value().gpu_operations, "");
  EXPECT_EQ(
      parse({{"HOROVOD_GPU_ALLREDUCE", "NCCL"}, {"HOROVOD_GPU_OPERATIONS", "MPI"}}).value().gpu_operations,
      "mpi");
  EXPECT_EQ(
      parse({{"HOROVOD_GPU_ALLREDUCE", "NCCL"}, {"RUEDA_GPU_OPERATIONS", "staged"}}).value().gpu_operations,
      "staged");
  EXPECT_THAT(ignored({{"HOROVOD_GPU_ALLREDUCE", "nccl"}}), IsEmpty());
  EXPECT_THAT(ignored({{"HOROVOD_GPU_ALLREDUCE", "DDL"}, {"HOROVOD_GPU_BROADCAST", "NCCL"}}), SizeIs(2));
}

TEST(BaseConfig, the_markdown_page_has_one_row_of_seven_cells_per_setting) {
  const std::string page = config_markdown();
  size_t rows = 0;
  const size_t settings =
      page.find("## Variables of elastic jobs");  // a table of its own, which rueda writes
  ASSERT_NE(settings, std::string::npos);
  for (size_t at = 0; at < settings;) {
    const size_t end = page.find('\n', at);
    const std::string line = page.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("| `RUEDA_")) continue;
    ++rows;
    size_t bars = 1;  // the line begins with one
    for (size_t i = 1; i < line.size(); ++i) bars += line[i] == '|' && line[i - 1] != '\\';
    EXPECT_EQ(bars, 8u) << line;
  }
  EXPECT_EQ(rows, config_table().size());
}

}  // namespace
}  // namespace rueda::base_config_test
