// Bundles the third-party packages of package.json into static/vendor/, one file for each entry beside this script.
// Our own scripts in static/js are plain modules and import the results, as in: import uPlot from '../vendor/uplot.js'.

import { readFileSync, readdirSync, rmSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const source = dirname(fileURLToPath(import.meta.url));
const root = join(source, '..', '..');
const vendor = join(source, '..', 'vendor');

const entries = readdirSync(source).filter((name) => /\.(js|css)$/.test(name));

rmSync(vendor, { recursive: true, force: true });
mkdirSync(vendor, { recursive: true });

const result = await build({
  absWorkingDir: root,
  entryPoints: entries.map((name) => join(source, name)),
  outdir: vendor,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none', // The notices of every package stand in full in THIRD_PARTY_LICENSES.txt.
  metafile: true,
  logLevel: 'warning',
});

writeFileSync(join(vendor, 'THIRD_PARTY_LICENSES.txt'), licenses(bundledPackages(result.metafile)));
report(result.metafile);

/** The folders in node_modules from which at least one byte went into a bundle, in order. */
function bundledPackages(metafile) {
  const folders = new Set();
  for (const output of Object.values(metafile.outputs)) {
    for (const input of Object.keys(output.inputs)) {
      const found = input.match(/^.*node_modules\/(?:@[^/]+\/)?[^/]+/);
      if (found) folders.add(found[0]);
    }
  }
  return [...folders].sort();
}

function licenses(folders) {
  const notices = folders.map((folder) => {
    const about = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'));
    return `${about.name} ${about.version} (${about.license})\n\n${licenseText(folder)}`;
  });
  return `The files in this folder contain the following packages.\n\n${notices.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

function licenseText(folder) {
  const file = readdirSync(join(root, folder)).find((name) => /^licen[sc]e/i.test(name));
  return file ? readFileSync(join(root, folder, file), 'utf8').trim() + '\n' : '(the package carries no license file)\n';
}

function report(metafile) {
  for (const [name, output] of Object.entries(metafile.outputs)) {
    console.log(`${name}  ${Math.round(output.bytes / 1024)} KiB`);
  }
}
