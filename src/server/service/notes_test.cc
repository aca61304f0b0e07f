#include "trireme/server/service/notes.h"

#include <gtest/gtest.h>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

TEST(Notes, NumbersComeBackAndWhatWasCutIsRefused) {
  std::string note;
  AppendNumbers<double>(note, std::vector<double>{1, 2.5});
  AppendNumbers<float>(note, {});
  std::string_view rest = note;
  EXPECT_EQ(CutNumbers<double>(rest), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(CutNumbers<float>(rest).empty());
  EXPECT_TRUE(rest.empty());
  for (std::size_t size = 0; size < 8 + 16; ++size) {
    std::string_view cut = std::string_view(note).substr(0, size);
    EXPECT_THROW(CutNumbers<double>(cut), Error) << size;
  }
  std::string huge(8, '\xff');
  std::string_view view = huge;
  EXPECT_THROW(CutNumbers<double>(view), Error);
}

TEST(Notes, AServerRefusesThoseThatMakeNoSense) {
  const TempFolder folder;
  const RunTerms terms = TestTerms(Pace::kSync, 2);
  {
    PartStorage storage;
    storage.folder = folder.path() + "/shard-0";
    const PartSetup setup{
        .identity = terms.Encode(), .optimizer = terms.optimizer, .begin = 0, .size = terms.params};
    ParameterPart part(setup, storage, std::vector<float>(terms.params));
    part.Note(kCollectNote, "abc");
  }
  MemoryTransport transport;
  const auto listener = transport.Listen("server", {});
  try {
    ParameterServer(*listener, {.folder = folder.path()});
    ADD_FAILURE() << "it has started";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the notes of a part are damaged"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme
