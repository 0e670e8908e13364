// SPDX-License-Identifier: Apache-2.0

import { join } from 'node:path'
import { defineConfig } from 'vitepress'
import { address, link, pages, parts, slug, title, work } from '../pages.mjs'

const all = pages()
const known = new Set(all)

const item = (page) => ({ text: page === 'README.md' ? 'Drover' : title(page), link: `/${address(page)}` })

const menu = parts(all).map((part) => ({
  text: part.text,
  collapsed: false,
  items: [...part.pages.map(item), ...(part.inner ? [{ text: part.inner.text, collapsed: true, items: part.inner.pages.map(item) }] : [])],
}))

// The page that a heading of the navigation leads to.
const door = (part) => ({ text: part.text, link: part.items.find((i) => i.link).link, activeMatch: '^$' })

/** Rewrites the links of a page, which are those of the repository. */
function rewrite(md) {
  md.core.ruler.push('links', (state) => {
    const from = state.env.realPath ?? state.env.path
    const page = from.slice(join(work, 'src').length + 1)
    for (const token of state.tokens.flatMap((t) => t.children ?? [])) {
      if (token.type === 'link_open') token.attrSet('href', link(page, token.attrGet('href'), known))
    }
  })
}

export default defineConfig({
  title: 'Drover',
  description: 'Loads the right out-of-tree kernel module on each node of a Kubernetes cluster',
  lang: 'en',
  head: [['link', { rel: 'icon', href: 'data:,' }]], // without it, browsers ask for a file that there is not
  srcDir: join(work, 'src'),
  outDir: join(work, 'dist'),
  cacheDir: join(work, 'cache'),
  rewrites: Object.fromEntries(all.map((p) => [p, address(p)])),
  // The test of the site finds dead links, anchors included.
  ignoreDeadLinks: true,
  lastUpdated: false,
  markdown: {
    anchor: { slugify: slug },
    headers: { slugify: slug },
    config: rewrite,
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
  },
  themeConfig: {
    nav: menu.map(door),
    sidebar: menu,
    outline: { level: [2, 3], label: 'On this page' },
    search: { provider: 'local', options: { miniSearch: { searchOptions: { boost: { title: 4, text: 2, titles: 1 } } } } },
    docFooter: { prev: 'Before', next: 'Next' },
  },
})
