// SPDX-License-Identifier: Apache-2.0

// Which files of the repository are pages of the site, where each stands there, and in which of the
// four parts.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'

export const repository = join(import.meta.dirname, '../..')
export const work = join(repository, '.cache/site')

// Pages of the root that others lead to.
const root = ['README.md', 'SCOPE.md', 'SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md']

/** Paths of all pages from the repository's root: what git has, and what is about to be added. */
export function pages() {
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', 'docs/*.md', ...root]
  const found = execFileSync('git', list, { cwd: repository, encoding: 'utf8' }).split('\0')
  return [...new Set(found)].filter((f) => f && !f.endsWith('0000-template.md') && existsSync(join(repository, f))).sort()
}

/** Where a page stands in the site. */
export function address(page) {
  if (page === 'README.md') return 'index.md'
  const path = page.startsWith('docs/') ? page.slice('docs/'.length) : `project/${page.toLowerCase()}`
  return path.replace(/README\.md$/, 'index.md')
}

/** A page's first heading, as plain text. */
export function title(page) {
  const heading = readFileSync(join(repository, page), 'utf8').match(/^# (.+)$/m)
  return heading ? heading[1].replaceAll('`', '') : page
}

/** Anchors are GitHub's, for which the pages are written. */
export function slug(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')
}

// Where the sources are read that are no pages: the module's path says it.
const module = readFileSync(join(repository, 'go.mod'), 'utf8').match(/^module (\S+)/m)[1]

/** What a link of a page becomes: another page's address, or that of a source in its repository. */
export function link(from, href, known) {
  if (/^[a-z]+:|^#/.test(href)) return href
  const [path, anchor] = href.split('#')
  const target = posix.normalize(posix.join(posix.dirname(from), path)).replace(/\/$/, '')
  const hash = anchor === undefined ? '' : `#${anchor}`
  for (const page of [target, posix.join(target, 'README.md')]) {
    if (known.has(page)) return `/${address(page)}${hash}`
  }
  if (!existsSync(join(repository, target))) throw new Error(`${from}: there is no ${target}`)
  const what = statSync(join(repository, target)).isDirectory() ? 'tree' : 'blob'
  return `https://${module}/${what}/main/${target}${hash}`
}

// Those who are new start with these, in this order.
const first = ['docs/guide/how-it-works.md', 'docs/guide/install.md', 'docs/guide/module.md', 'docs/guide/explain.md',
  'docs/guide/operators.md', 'docs/guide/first-operator.md', 'docs/guide/lolcow.md']

// The page of each part that others are listed on, in the order of its table.
function listed(contents, all) {
  const links = [...readFileSync(join(repository, contents), 'utf8').matchAll(/\]\(([^)#]+\.md)/g)]
  const order = links.map((m) => posix.normalize(posix.join(posix.dirname(contents), m[1])))
  const place = (p) => (order.includes(p) ? order.indexOf(p) : order.length)
  return all.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1))
}

/** The four parts of the site. Each page is in one of them. */
export function parts(all) {
  const of = (folder) => all.filter((p) => posix.dirname(p) === folder)
  const plain = (p) => posix.basename(p) !== 'README.md'
  const guide = of('docs/guide').filter((p) => plain(p) && !first.includes(p))
  const reference = of('docs/reference').filter(plain)
  return [
    { text: 'First steps', pages: ['README.md', ...first.filter((p) => all.includes(p))] },
    { text: 'How-tos', pages: ['docs/guide/README.md', ...listed('docs/guide/README.md', guide)] },
    { text: 'Reference', pages: listed('docs/guide/README.md', reference),
      inner: { text: 'Kinds', pages: ['docs/reference/api/README.md', ...listed('docs/reference/api/README.md', of('docs/reference/api').filter(plain))] } },
    { text: 'Explanation', pages: ['docs/design/README.md', ...of('docs/design').filter(plain)],
      inner: { text: 'The project', pages: root.filter((p) => p !== 'README.md' && all.includes(p)) } },
  ]
}
