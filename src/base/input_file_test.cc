#include "trireme/base/input_file.h"

#include <gtest/gtest.h>

#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

TEST(InputFile, GivesTheBytesOfAFile) {
  const ScratchFolder folder;
  const std::string bytes("a\r\n\0b", 5);
  WriteFileAtomically(folder.path() / "file", bytes);
  std::ifstream in = OpenInputFile(folder.path() / "file");
  std::ostringstream read;
  read << in.rdbuf();
  EXPECT_EQ(read.str(), bytes);
}

TEST(InputFile, SaysWhatCannotBeRead) {
  const ScratchFolder folder;
  const auto refusal = [](const std::filesystem::path& path) -> std::string {
    try {
      OpenInputFile(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal(folder.path()), "cannot read " + folder.path().string() + ": it is a folder");
  const std::string missing = (folder.path() / "none").string();
  EXPECT_EQ(refusal(missing), "cannot read " + missing + ": No such file or directory");
}

// The examples of FIPS 180-2, and that pieces are put together rightly where the text is longer than one.
TEST(Sha256OfAStream, IsThatOfAllThatIsLeft) {
  const auto of = [](const std::string& text, std::size_t skipped = 0) {
    std::istringstream in(text);
    in.ignore(static_cast<std::streamsize>(skipped));
    return Sha256Hex(in);
  };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("xyzabc", 3), of("abc"));
  const std::string million(1'000'000, 'a');
  EXPECT_EQ(of(million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(of(million), Sha256Hex(million));
}

}  // namespace
}  // namespace trireme
