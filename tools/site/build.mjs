// SPDX-License-Identifier: Apache-2.0

// Copies the repository's pages, as they are, to .cache/site/src, and builds them to
// .cache/site/dist. There is no second copy of a page in git. Links are rewritten as pages are
// rendered (.vitepress/config.mjs). BREAK=link and BREAK=field spoil the copy: the test of the site
// must notice.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { build } from 'vitepress'
import { pages, repository, work } from './pages.mjs'

const spoilers = {
  // A page gets a link to a heading that is not there.
  link: ['docs/guide/module.md', (text) => `${text}\n[nowhere](install.md#no-such-heading)\n`],
  // A field loses its row.
  field: ['docs/reference/api/module.md', (text) => text.replace(/^\| `unloadPolicy` .*\n/m, '')],
}

function spoil(name) {
  if (!name) return
  if (!spoilers[name]) throw new Error(`BREAK is ${name}: give one of ${Object.keys(spoilers).join(' ')}, or none`)
  const [page, change] = spoilers[name]
  const file = join(work, 'src', page)
  const before = readFileSync(file, 'utf8')
  const after = change(before)
  if (after === before) throw new Error(`BREAK=${name} changes nothing in ${page}`)
  writeFileSync(file, after)
}

rmSync(work, { recursive: true, force: true })
const images = execFileSync('git', ['ls-files', '-z', 'docs/images'], { cwd: repository, encoding: 'utf8' }).split('\0').filter(Boolean)
for (const file of [...pages(), ...images]) {
  const copy = join(work, 'src', file)
  mkdirSync(dirname(copy), { recursive: true })
  cpSync(join(repository, file), copy)
}
// The pages import Vue, which is looked for from where they are.
symlinkSync(join(import.meta.dirname, 'node_modules'), join(work, 'node_modules'))
spoil(process.env.BREAK)
await build(import.meta.dirname)
