#include "doctor/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rueda::doctor::hardware_test {
namespace {

namespace fs = std::filesystem;

// A /sys and a /proc of our own.
class DoctorHardware : public testing::Test {
 protected:
  DoctorHardware() { fs::create_directories(root_); }
  ~DoctorHardware() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  std::string root_ = testing::TempDir() + "rueda-hardware-" + std::to_string(getpid());
};

TEST_F(DoctorHardware, a_physical_card_has_rate_mtu_node_and_driver) {
  write("/sys/class/net/eth0/mtu", "9000");
  write("/sys/class/net/eth0/speed", "25000");
  write("/sys/class/net/eth0/device/numa_node", "1");
  fs::create_directories(root_ + "/drivers/mlx5_core");
  fs::create_symlink(root_ + "/drivers/mlx5_core", root_ + "/sys/class/net/eth0/device/driver");
  const NetworkCard card = read_network_card(root_, "eth0");
  EXPECT_TRUE(card.is_physical);
  EXPECT_EQ(card.mbit_per_s, 25000);
  EXPECT_EQ(card.mtu, 9000);
  EXPECT_EQ(card.numa_node, 1);
  EXPECT_EQ(card.driver, "mlx5_core");
}

TEST_F(DoctorHardware, the_invented_rate_of_a_virtual_interface_is_not_reported) {
  write("/sys/class/net/veth0/mtu", "1500");
  write("/sys/class/net/veth0/speed", "10000");
  EXPECT_FALSE(read_network_card(root_, "veth0").is_physical);
  EXPECT_EQ(read_network_card(root_, "veth0").mbit_per_s, 0);
  EXPECT_EQ(read_network_card(root_, "../../etc").mtu, 0);
  write("/sys/class/net/virtio0/speed", "-1");
  write("/sys/class/net/virtio0/device/numa_node", "-1");
  EXPECT_EQ(read_network_card(root_, "virtio0").mbit_per_s, 0);
}

TEST_F(DoctorHardware, memory_nodes_come_in_the_order_of_their_numbers) {
  write("/sys/devices/system/node/node10/cpulist", "40-43");
  write("/sys/devices/system/node/node2/cpulist", "8-11");
  write("/sys/devices/system/node/possible", "0-10");
  const std::vector<NumaNode> nodes = read_numa_nodes(root_);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].number, 2);
  EXPECT_EQ(nodes[1].cpus, "40-43");
}

TEST_F(DoctorHardware, the_clock_source_and_the_gpus_are_read) {
  write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
  write("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet");
  EXPECT_EQ(read_clock_source(root_).current, "hpet");
  EXPECT_EQ(read_clock_source(root_).available, "tsc hpet");
  write("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H100\nIRQ: 12");
  write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24");
  EXPECT_THAT(read_nvidia_gpus(root_).models, testing::ElementsAre("NVIDIA H100"));
  EXPECT_EQ(read_nvidia_gpus(root_).driver, "535.161.08");
}

TEST_F(DoctorHardware, a_machine_without_all_this_is_described_too) {
  EXPECT_TRUE(read_numa_nodes(root_).empty());
  EXPECT_TRUE(read_nvidia_gpus(root_).models.empty());
  EXPECT_EQ(read_clock_source(root_).current, "");
  EXPECT_FALSE(read_network_card(root_, "eth0").is_physical);
}

}  // namespace
}  // namespace rueda::doctor::hardware_test
