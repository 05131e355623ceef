// The page of labels: its job, with names, notes and the log.

import { startJobPage } from './job_page.js';

startJobPage();
