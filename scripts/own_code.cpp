// A plugin of clang-tidy's that has its checks look at our own declarations only. What they find in the headers of
// others it throws away in any case, but only after a search that takes half of its time. (From LLVM 22 on it does so
// itself.) scripts/lint.sh builds and loads it.

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Frontend/FrontendPluginRegistry.h>

#include <memory>
#include <string>
#include <vector>

namespace {

class OwnCode : public clang::ASTConsumer {
 public:
  void HandleTranslationUnit(clang::ASTContext& context) override {
    const clang::SourceManager& sources = context.getSourceManager();
    std::vector<clang::Decl*> own;
    for (clang::Decl* decl : context.getTranslationUnitDecl()->decls())
      if (!sources.isInSystemHeader(decl->getLocation())) own.push_back(decl);
    context.setTraversalScope(own);
  }
};

/// Runs before what clang-tidy does.
class OwnCodeAction : public clang::PluginASTAction {
 public:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance&, llvm::StringRef) override {
    return std::make_unique<OwnCode>();
  }
  bool ParseArgs(const clang::CompilerInstance&, const std::vector<std::string>&) override { return true; }
  ActionType getActionType() override { return AddBeforeMainAction; }
};

clang::FrontendPluginRegistry::Add<OwnCodeAction> add("own-code", "checks look at our own declarations only");

}  // namespace
