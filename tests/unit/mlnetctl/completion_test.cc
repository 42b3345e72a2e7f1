// SPDX-License-Identifier: Apache-2.0
// The scripts are run by the shells that are installed: bash always, zsh and fish where they are.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include "mlnetctl/cli.h"

namespace mlnet::ctl {
namespace {

std::string Script(const std::string& shell) {
  std::ostringstream out, err;
  EXPECT_EQ(RunCli({"completion", shell}, out, err, {}), 0) << err.str();
  return out.str();
}

std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

/// What bash offers after `words`, the last of which is being typed.
std::string BashOffers(const std::string& words) {
  const std::string command = MLNETCTL_BINARY;
  return Output("bash -c 'source <(" + command + " completion bash); COMP_WORDS=(" + words +
                "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _mlnetctl; echo \"${COMPREPLY[*]}\"'");
}

TEST(BashCompletion, OffersCommandsOfTheLevel) {
  EXPECT_EQ(BashOffers("mlnetctl \"\""), "status iface job plan qos stats top trace probe version completion\n");
  EXPECT_EQ(BashOffers("mlnetctl st"), "status stats\n");
  EXPECT_EQ(BashOffers("mlnetctl iface \"\""), "attach detach list\n");
  EXPECT_EQ(BashOffers("mlnetctl -j iface de"), "detach\n");
}

TEST(BashCompletion, OffersOptionsOfTheCommandAndGlobalOnes) {
  EXPECT_EQ(BashOffers("mlnetctl job create --w"), "--world-size --weight --work-bytes\n");
  EXPECT_EQ(BashOffers("mlnetctl job create --js"), "--json\n");
  EXPECT_EQ(BashOffers("mlnetctl job list --w"), "\n");
  EXPECT_EQ(BashOffers("mlnetctl stats demo --l"), "--levels\n");
  EXPECT_EQ(BashOffers("mlnetctl top --i"), "--interval\n");
}

TEST(Completion, ZshNamesItsCommandAndEscapesHelp) {
  const std::string script = Script("zsh");
  EXPECT_EQ(script.rfind("#compdef mlnetctl\n", 0), 0u);
  EXPECT_NE(script.find("'attach:put mlnet'\\''s program on an interface'"), std::string::npos) << script;
}

TEST(Completion, FishOffersSubcommandsOnlyAfterTheirNoun) {
  EXPECT_NE(Script("fish").find("complete -c mlnetctl -f -n '__fish_seen_subcommand_from iface; and not "
                                "__fish_seen_subcommand_from attach detach list' -a detach"),
            std::string::npos);
}

}  // namespace
}  // namespace mlnet::ctl
