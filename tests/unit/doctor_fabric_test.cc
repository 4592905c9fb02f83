#include "doctor/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rueda::doctor::fabric_test {
namespace {

using testing::HasSubstr;

std::string value_of(const Section& section, std::string_view name) {
  for (const Fact& fact : section.facts)
    if (fact.name == name) return fact.value;
  return "";
}

const RdmaPort kActive{
    .card = "mlx5_0", .port = "1", .state = "ACTIVE", .rate = "100 Gb/sec", .link_layer = "Ethernet"};
const RdmaPort kDown{
    .card = "mlx5_1", .port = "1", .state = "DOWN", .rate = "10 Gb/sec", .link_layer = "InfiniBand"};
const UcxFound kUcx{.version = "1.13.1", .why_not = ""};
const UcxFound kNoUcx{.version = "", .why_not = "no such file"};

TEST(DoctorFabric, cards_are_read_as_the_kernel_shows_them) {
  std::string folder = (std::filesystem::temp_directory_path() / "rueda-fabric-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::filesystem::path port = std::filesystem::path(folder) / "mlx5_0" / "ports" / "1";
  std::filesystem::create_directories(port);
  std::ofstream(port / "state") << "4: ACTIVE\n";
  std::ofstream(port / "rate") << "200 Gb/sec (4X HDR)\n";
  std::ofstream(port / "link_layer") << "InfiniBand\n";
  const std::vector<RdmaPort> found = rdma_ports(folder);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(found.size(), 1U);
  const Section section = describe_fabric(found, kUcx, "shm,tcp", "");
  EXPECT_EQ(value_of(section, "mlx5_0 port 1"), "ACTIVE, 200 Gb/sec (4X HDR), InfiniBand");
  EXPECT_TRUE(rdma_ports(folder).empty());
}

TEST(DoctorFabric, pairs_of_ranks_use_the_first_transport_that_is_allowed) {
  const auto used = [](std::string_view transports) {
    const Section section = describe_fabric({}, kUcx, transports, "tcp");
    return value_of(section, "within a host") + " " + value_of(section, "between hosts");
  };
  EXPECT_EQ(used("shm,tcp"), "shm tcp");
  EXPECT_EQ(used("shm,ucx"), "shm ucx");
  EXPECT_EQ(used("tcp,ucx,shm"), "shm ucx");
  EXPECT_EQ(used("ucx"), "ucx ucx");
  EXPECT_EQ(used("shm"), "shm none");
}

TEST(DoctorFabric, ucx_that_is_named_but_missing_or_old_is_broken) {
  for (const UcxFound& found : {kNoUcx, UcxFound{.version = "1.12.0", .why_not = ""}}) {
    const Section section = describe_fabric({kActive}, found, "shm,ucx", "");
    ASSERT_EQ(section.problems.size(), 1U);
    EXPECT_TRUE(section.problems[0].is_broken);
    EXPECT_THAT(section.problems[0].sentence, HasSubstr("RUEDA_TRANSPORTS names ucx"));
  }
  EXPECT_TRUE(describe_fabric({kActive}, kNoUcx, "shm,tcp", "").problems.empty());
}

TEST(DoctorFabric, ucx_without_an_active_port_is_advice_unless_ucx_tls_is_set) {
  EXPECT_EQ(describe_fabric({kDown}, kUcx, "shm,ucx", "").problems.size(), 1U);
  EXPECT_FALSE(describe_fabric({kDown}, kUcx, "shm,ucx", "").problems[0].is_broken);
  EXPECT_TRUE(describe_fabric({kDown}, kUcx, "shm,ucx", "tcp").problems.empty());
  EXPECT_TRUE(describe_fabric({kDown, kActive}, kUcx, "shm,ucx", "").problems.empty());
}

TEST(DoctorFabric, an_active_card_that_is_not_used_is_mentioned) {
  EXPECT_THAT(value_of(describe_fabric({kActive}, kUcx, "shm,tcp", ""), "not used"), HasSubstr("shm,ucx"));
  EXPECT_EQ(value_of(describe_fabric({kActive}, kNoUcx, "shm,tcp", ""), "not used"), "");
  EXPECT_EQ(value_of(describe_fabric({kDown}, kUcx, "shm,tcp", ""), "not used"), "");
}

}  // namespace
}  // namespace rueda::doctor::fabric_test
