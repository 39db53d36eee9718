// SPDX-License-Identifier: Apache-2.0
// No byte outside of the caller's tensors is read or written. The runner checks guard bands on every run of every test; here memory
// ends at a page that faults, so that generated code is caught as well.
#include <cstring>

#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class Memory : public OperatorTest {};

TEST_P(Memory, NothingBeyondATensorsBytesIsRead) {
  if (on_gpu()) GTEST_SKIP() << "pages that fault are the host's; ./dev gpu-test --sanitize watches a GPU's memory";
  for (const auto edge : {PageEdgeBuffer::Edge::kEnd, PageEdgeBuffer::Edge::kBegin})
    for (const DType dtype : kXDTypes)
      for (const std::int64_t n : {1, 3, 17})
        for (const std::int64_t c_z : {1, 5, 33, 64}) {
          const Case data({.n = n, .c_z = c_z, .c = c_z + 2, .x_dtype = dtype, .mask_dtype = dtype, .residual = true});
          if (!accepts(data)) continue;
          const auto expected = run(data, implementation()).raw;
          Bound bound(data);
          std::vector<std::unique_ptr<PageEdgeBuffer>> copies;
          const auto move_to_edge = [&](trimul_tensor& tensor, const HostTensor& owner) {
            copies.push_back(std::make_unique<PageEdgeBuffer>(owner.buffer().size(), edge));
            std::memcpy(copies.back()->data(), owner.buffer().data(), owner.buffer().size());
            tensor.data = copies.back()->data();
          };
          move_to_edge(bound.x, data.x);
          move_to_edge(bound.mask, *data.mask);
          for (unsigned k = 0; k < kNumParameters; ++k) move_to_edge(bound.tensors[k], *data.parameters[k]);
          const HostTensor out(dtype, data.x.sizes());
          trimul_tensor out_view = out.view();
          move_to_edge(out_view, out);

          const PlanPtr plan = make_plan(data.problem(), implementation());
          const WeightsPtr weights = make_weights(plan.get(), bound);
          const std::size_t workspace_bytes = trimul_plan_workspace_bytes(plan.get());
          ASSERT_EQ(workspace_bytes % sizeof(float), 0U);
          const PageEdgeBuffer workspace((workspace_bytes + 255) / 256 * 256, edge);
          trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
          args.x = &bound.x;
          args.mask = &bound.mask;
          args.weights = weights.get();
          args.out = &out_view;
          args.workspace = workspace.data();
          args.workspace_bytes = workspace_bytes;
          ASSERT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error();
          EXPECT_EQ(std::memcmp(out_view.data, expected.data(), expected.size()), 0) << describe(data.spec);
        }
}

TEST_P(Memory, NoMoreThanTheAskedWorkspaceIsUsed) {
  for (const std::int64_t n : {1, 5, 16, 17})
    for (const std::int64_t c : {1, 8, 33}) {
      const Case data(fitted({.n = n, .c = c}));
      ASSERT_TRUE(accepts(data));
      run(data, implementation(), {.spare_workspace = 4096});  // which run() checks
    }
}

/// Contract: out + three planes of B C N n_pad elements + slack. On the CPU samples run one by one in fp32, fp64 in the reference.
TEST_P(Memory, WorkspaceStaysBelowThreePlanesAndTheTiles) {
  if (on_gpu()) GTEST_SKIP() << "gpu_test.cpp has the planes of a GPU";
  const double element_bytes = implementation() == "reference" ? 8 : 4;
  for (const std::int64_t n : {256, 1024}) {
    trimul_problem problem = Case({.n = 1, .c_z = 128, .c = 128}).problem();
    problem.batch = 4;
    problem.tokens = n;
    ASSERT_TRUE(accepts(Case({.n = 1, .c_z = 128, .c = 128})));
    for (const int threads : {1, 2, 64}) {
      const PlanPtr plan = make_plan(problem, implementation(), threads);
      EXPECT_LE(static_cast<double>(trimul_plan_workspace_bytes(plan.get())),
                3.0 * 128 * static_cast<double>(n * n) * element_bytes + 4e6 * threads)
          << n << ", " << threads << " threads";
    }
  }
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(Memory);

}  // namespace
}  // namespace trimul::testing
