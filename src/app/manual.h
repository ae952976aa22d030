// manual: what is made of the table of options besides parsing and help: lists for the manual page and
// docs/from-llama.cpp.md, and completion for shells.  scripts/docs.sh puts it where it belongs.
#ifndef WEFT_APP_MANUAL_H
#define WEFT_APP_MANUAL_H

// weft help --as KIND [COMMAND]: prints one of man (of a command, or "environment"), llama.cpp, options, variables
// (tables of Markdown), bash, zsh and fish.  The exit status.
int manual_print(const char *kind, const char *command);
#endif
