#include "workload/models.h"

#include <gmock/gmock.h>

#include <set>

namespace rueda::workload::models_test {
namespace {

using ::testing::HasSubstr;

struct Published {
  const char* name;
  int64_t total;
  size_t tensors;
  const char *first, *last;  // in the order of backward
};

class Models : public ::testing::TestWithParam<Published> {};

TEST_P(Models, have_the_published_number_of_parameters) {
  const Result<Model> found = find_model(GetParam().name);
  ASSERT_TRUE(found.is_ok()) << found.status().why;
  const Model& model = found.value();
  EXPECT_EQ(model.name, GetParam().name);
  EXPECT_EQ(model.total(), GetParam().total);
  EXPECT_EQ(model.parameters.size(), GetParam().tensors);
  EXPECT_EQ(model.parameters.front().name, GetParam().first);
  EXPECT_EQ(model.parameters.back().name, GetParam().last);
  EXPECT_GT(model.compute_ms, 0);
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters) names.insert(parameter.name);
  EXPECT_EQ(names.size(), model.parameters.size());
}

INSTANTIATE_TEST_SUITE_P(
    All, Models,
    ::testing::Values(Published{"resnet50", 25'557'032, 161, "fc.bias", "conv1.weight"},
                      Published{"resnet101", 44'549'160, 314, "fc.bias", "conv1.weight"},
                      Published{"inception_v3", 27'161'264, 292, "fc.bias", "Conv2d_1a_3x3.conv.weight"},
                      Published{"vgg16", 138'357'544, 32, "classifier.6.bias", "features.0.weight"},
                      Published{"bert_base", 109'482'240, 199, "pooler.dense.bias",
                                "embeddings.word_embeddings.weight"},
                      Published{"gpt2", 124'439'808, 148, "ln_f.bias", "wte.weight"}),
    [](const auto& published) { return std::string(published.param.name); });

TEST(ModelFiles, are_exactly_those_tested_here) { EXPECT_EQ(model_names().size(), 6U); }

TEST(ModelFiles, unknown_name_lists_those_known) {
  EXPECT_THAT(find_model("resnet51").status().why, HasSubstr("resnet101, resnet50, vgg16"));
  EXPECT_THAT(find_model("/nowhere/m.json").status().why, HasSubstr("cannot read /nowhere/m.json"));
}

TEST(ModelFiles, malformed_ones_are_refused_by_what_is_wrong) {
  const std::string head = R"({"name": "m", "source": "s", "compute_source": "c", "compute_ms": 1, )";
  ASSERT_TRUE(parse_model(head + R"("total": 3, "parameters": [["a", 1], ["b", 2]]})", "F").is_ok());
  EXPECT_THAT(parse_model(head + R"("total": 4, "parameters": [["a", 1], ["b", 2]]})", "F").status().why,
              HasSubstr("not the sum of its parameters, 3"));
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"name": 3})"),
        head + R"("total": 0, "parameters": []})", head + R"("total": 1, "parameters": [["a", -1]]})",
        head + R"("total": 1, "parameters": [["a"]]})", head + R"("total": 1})",
        std::string(R"({"name": "m", "source": "s", "compute_source": "c", "compute_ms": 1e15, "total": 1, )"
                    R"("parameters": [["a", 1]]})")})
    EXPECT_THAT(parse_model(text, "F").status().why, HasSubstr("F is not a list of gradients")) << text;
}

// Three gradients of 4000 bytes appear 20, 30 and 40 ms after the start.
Model three_gradients() {
  Model model;
  model.parameters = {{"c", 1000}, {"b", 1000}, {"a", 1000}};
  return model;
}

TEST(EarliestEnd, is_one_transfer_after_backward_if_the_link_is_fast) {
  EXPECT_DOUBLE_EQ(earliest_end_ms(three_gradients(), 10, 30, 1.0 / 4000), 41);
}

TEST(EarliestEnd, is_all_transfers_after_the_first_gradient_if_the_link_is_slow) {
  EXPECT_DOUBLE_EQ(earliest_end_ms(three_gradients(), 10, 30, 20.0 / 4000), 20 + 3 * 20);
}

TEST(EarliestEnd, counts_the_time_in_which_the_link_has_nothing_to_send) {
  Model model = three_gradients();
  model.parameters[0].count = 100;  // its transfer takes 2 ms, and then the link waits for the next gradient
  EXPECT_DOUBLE_EQ(earliest_end_ms(model, 10, 30, 20.0 / 4000), 30 + 2 * 20);
}

}  // namespace
}  // namespace rueda::workload::models_test
